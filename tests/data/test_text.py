"""Laws of `lib.data.text`: nothing says who speaks where it must not, no scene in two parts, bytes as published."""

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
    return text.passages(play, speakers=6, window=32)


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


def test_a_scene_ends_where_the_cast_changes():
    speakers = [*"ababab", *"cdcdc", *"cacac"]
    assert text.scenes(speakers, cast=3) == [0] * 6 + [1] * 10  # c goes on speaking: no change after d
    assert text.scenes([*"aabbcc"], cast=2) == [0, 0, 1, 1, 2, 2]
    assert text.scenes([*"abcdef"], cast=2) == [0, 0, 1, 1, 2, 2]  # never shorter than the cast


def test_no_scene_is_in_two_parts(passages):
    scenes = [set(passages.scenes[part].tolist()) for part in text.PARTS]
    assert all(scenes)
    assert sum(len(own) for own in scenes) == len(set.union(*scenes))


@pytest.mark.skipif(not SHAKESPEARE.is_file(), reason="the packed text is not beside the repository")
def test_no_test_passage_of_the_public_text_is_learned_from():
    found = text.passages(text.parse("tinyshakespeare", SHAKESPEARE.read_text()), speakers=20, window=128)
    said = {
        part: set(zip(map(bytes, found.tokens[part]), found.labels[part].tolist(), strict=True)) for part in text.PARTS
    }
    assert len(said["test"]) > 1000
    assert not said["train"] & (said["valid"] | said["test"])


def test_a_passage_is_said_by_its_speaker_in_its_scene_and_ends_with_a_new_line(play, passages):
    said = {(speech.speaker, speech.scene, speech.words) for speech in play.speeches}
    for part in text.PARTS:
        assert (passages.tokens[part][:, -1] == 0).all()
        kinds = (passages.tokens[part], passages.labels[part], passages.scenes[part])
        for tokens, label, scene in zip(*kinds, strict=True):
            words = play.decode(tokens).rstrip("\n")
            assert any(words in of for who, where, of in said if (who, where) == (passages.speakers[label], scene))


def test_the_most_frequent_speakers_are_asked_for():
    speech = "A line that is long enough."
    names = "ABACABACAB" * 30
    play = text.parse("toy", "\n\n".join(f"{name}:\n{speech}" for name in names))
    with pytest.raises(BadInput, match=r"^toy: the valid part"):  # one cast all the time is one scene
        text.passages(play, 2, 32)
    play = text.Play(
        "toy", tuple(text.Speech(s.speaker, s.words, i // 20) for i, s in enumerate(play.speeches)), play.symbols
    )
    assert text.passages(play, 2, 32).speakers == ("A", "B")


def test_pieces_are_cut_between_lines_and_fit():
    assert text.pieces("one two\nthree\nfour", 13) == ["one two\nthree", "four"]
    assert text.pieces("a line too long\nb", 6) == ["a line", "b"]


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
