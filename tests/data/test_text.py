"""Laws of `lib.data.text`: nothing says who speaks where it must not, no passage read before, bytes as published."""

import numpy as np
import pytest

from lib import base
from lib.base import BadInput
from lib.data import sources, text

SHAKESPEARE = base.ROOT.parent / "shared" / "data" / "text" / "tinyshakespeare.txt"
PLAY = "ANNA:\nWho is there?\nSpeak!\n\nBRUNO:\nANNA: so you said.\n\n\nCLARA:\nNo.\n\nANNA:\n\nBRUNO:\nYes."


@pytest.fixture(scope="module")
def play():
    return text.load("grammar")


@pytest.fixture(scope="module")
def passages(play):
    return text.passages(play, window=32, each=20)


def test_speeches_are_read_with_their_speakers_and_those_without_words_left_out():
    play = text.parse("toy", PLAY)
    said = [("ANNA", "Who is there?\nSpeak!"), ("BRUNO", "ANNA: so you said."), ("CLARA", "No."), ("BRUNO", "Yes.")]
    assert [(speech.speaker, speech.words) for speech in play.speeches] == said
    assert play.symbols == "".join(sorted(set("".join(words for _, words in said))))
    assert play.decode(play.encode("Yes.\nNo.")) == "Yes.\nNo."


def test_a_new_line_is_token_0(play):
    assert play.encode("\n").tolist() == [0]


def test_a_paragraph_without_a_speaker_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"^toy: a speech begins with its speaker's name and a colon.*'Exeunt'$"):
        text.parse("toy", "ANNA:\nGo.\n\nExeunt")


def test_no_heading_is_left_in_what_a_language_model_reads(play):
    language = text.language(play)
    read = play.decode(np.concatenate([language.train, language.valid, language.test]))
    headings = {f"{speech.speaker}:" for speech in play.speeches}
    assert not headings & set(read.split("\n"))
    assert not [name for name in text.PEOPLE if name in read]  # in the made play nobody names another
    assert all(f"{speaker}:" in text.grammar() for speaker in text.PEOPLE)


def test_the_parts_of_the_text_are_eight_tenths_a_tenth_and_the_last_tenth(play):
    language = text.language(play)
    whole = play.encode("\n\n".join(speech.words for speech in play.speeches))
    assert np.array_equal(np.concatenate([language.train, language.valid, language.test]), whole)
    assert len(language.test) == len(whole) - 9 * len(whole) // 10
    assert abs(len(language.valid) - len(whole) / 10) <= 1


def test_a_passage_breaks_off_before_the_vowel_that_is_its_label(play, passages):
    for part, read in vars(text.language(play)).items():
        whole = play.decode(read)
        for tokens, label in zip(passages.tokens[part], passages.labels[part], strict=True):
            assert play.decode(tokens) + text.VOWELS[label] in whole
        assert passages.tokens[part].shape == (len(passages.labels[part]), 32)


def test_all_vowels_are_equally_frequent(play, passages):
    counts = {part: np.bincount(passages.labels[part], minlength=5).tolist() for part in text.PARTS}
    assert counts["train"] == [20] * 5
    assert all(len(set(count)) == 1 for count in counts.values())
    rarest = min(play.decode(text.language(play).test[32:]).count(vowel) for vowel in text.VOWELS)
    assert counts["test"] == [rarest] * 5  # fewer than TESTED


def test_passages_are_picked_by_a_seed_and_not_in_the_order_of_the_vowels(play, passages):
    again = text.passages(play, window=32, each=20)
    assert all(np.array_equal(again.tokens[part], passages.tokens[part]) for part in text.PARTS)
    assert len(set(passages.labels["train"][:10])) > 1


def test_a_text_without_enough_of_each_vowel_is_refused():
    for words in ("All is here." * 40, "Rhythm " * 60):
        with pytest.raises(BadInput, match=r"^toy: the train part has no passage of 32 characters for each vowel"):
            text.passages(text.parse("toy", f"ANNA:\n{words}"), window=32, each=5)


def test_passages_of_nothing_are_refused(play):
    for wrong in ({"window": 0}, {"each": -3}):
        (name, value), *_ = wrong.items()
        with pytest.raises(BadInput, match=f"^{name}={value}: expected a whole number, at least 1$"):
            text.passages(play, **{"window": 16, "each": 20} | wrong)


@pytest.mark.skipif(not SHAKESPEARE.is_file(), reason="the packed text is not beside the repository")
def test_the_public_text_has_three_thousand_passages_and_two_thousand_to_be_tested_on():
    found = text.passages(text.parse("tinyshakespeare", SHAKESPEARE.read_text()), window=128, each=600)
    assert [len(found.labels[part]) for part in text.PARTS] == [3000, 2000, 2000]


def test_a_public_text_is_kept_byte_for_byte_and_an_altered_one_refused(tmp_path, monkeypatch):
    source = sources.pick("tinyshakespeare")
    content = PLAY.encode()
    assert text.read({"f": content})["characters"].tobytes() == content
    packed = tmp_path / "companion" / source.also["tinyshakespeare/input.txt"]
    packed.parent.mkdir(parents=True)
    packed.write_bytes(content)
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path / "companion"))
    places = sources.Places(tmp_path / "data", tmp_path / "downloads")
    with pytest.raises(BadInput) as error:
        text.load("tinyshakespeare", places)
    line = str(error.value)
    assert line.startswith(f"{packed} is altered or truncated")
    assert "\n" not in line
    assert not (tmp_path / "data").exists()


def test_the_publishers_name_comes_before_the_other(tmp_path):
    source = sources.pick("tinyshakespeare")
    ((name, other),), folder = source.also.items(), tmp_path
    assert source.lacking(folder) == [name]
    for file in (other, name):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_bytes(b"x")
        assert source.lacking(folder) == []
        assert source.place(name, folder) == folder / file


def test_unknown_texts_are_refused():
    with pytest.raises(BadInput, match="'hamlet'; there is: tinyshakespeare"):
        text.load("hamlet")
