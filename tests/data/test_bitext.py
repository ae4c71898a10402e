"""Laws of `lib.data.bitext` and `lib.data.subwords`: lines stay side by side, sentences come back whole."""

import gzip

import pytest

from lib.base import BadInput
from lib.data import bitext, sources
from lib.data.subwords import Subwords
from lib.models.translator import BEGIN, END, PAD, UNKNOWN

LINES = {"de": "Zwei Männer.\nEin Hund läuft.\n", "en": "Two men.\nA dog runs.\n"}


def published(**changed):
    files = {
        f"multi30k/{part}.{language}.gz": gzip.compress(LINES[language].encode())
        for part in bitext.FILES
        for language in bitext.LANGUAGES
    }
    return files | {f"multi30k/{name.replace('_', '.')}.gz": content for name, content in changed.items()}


@pytest.fixture(scope="module")
def made():
    return bitext.load("numbers")


def test_lines_become_rows_in_their_order():
    arrays = bitext.read(published())
    assert {f"{part}_{language}" for part in bitext.PARTS for language in bitext.LANGUAGES} == set(arrays)
    assert [line.decode() for line in arrays["test_de"]] == ["Zwei Männer.", "Ein Hund läuft."]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"val_en": b"no gzip"}, r"multi30k/val\.en\.gz is no packed text"),
        ({"train_de": gzip.compress(LINES["de"].encode())[:-9]}, r"multi30k/train\.de\.gz is no packed text"),
        ({"train_de": gzip.compress("läuft".encode("latin-1"))}, r"multi30k/train\.de\.gz is no packed text"),
        ({"train_en": gzip.compress(b"One.\n\nTwo.\n")}, r"multi30k/train\.en\.gz, line 2: empty"),
        ({"train_en": gzip.compress(b"One.\n")}, "the train part has 2 German sentences and 1 English"),
    ],
)
def test_bad_files_get_one_clear_line(changed, line):
    with pytest.raises(BadInput, match=line) as error:
        bitext.read(published(**changed))
    assert "\n" not in str(error.value)


def test_an_altered_file_is_refused_and_nothing_kept(tmp_path, monkeypatch):
    source = sources.pick("multi30k")
    for name in source.also.values():
        path = tmp_path / "companion" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b"One.\n"))
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path / "companion"))
    with pytest.raises(BadInput, match="altered or truncated") as error:
        bitext.load("multi30k-de-en", sources.Places(tmp_path / "data", tmp_path / "downloads"))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()


def test_both_directions_hold_the_same_pairs(tmp_path, monkeypatch):
    arrays = bitext.read(published())
    monkeypatch.setattr(bitext, "prepare", lambda name, places: ({array: array for array in arrays}, "here"))
    monkeypatch.setattr(sources, "open_array", arrays.get)
    one, other = (bitext.load(f"multi30k-{way}").parts for way in ("de-en", "en-de"))
    assert one["train"] == (("Zwei Männer.", "Ein Hund läuft."), ("Two men.", "A dog runs."))
    assert {part: sides[::-1] for part, sides in one.items()} == other


def test_unknown_names_are_refused():
    with pytest.raises(BadInput, match="no pairs of sentences called 'wmt14'"):
        bitext.load("wmt14")
    with pytest.raises(BadInput, match="no public pairs called 'numbers'"):
        bitext.prepare("numbers")


def test_a_made_number_has_its_ones_first_in_german():
    assert bitext.number(42) == ("zweiundvierzig", "forty two")
    assert bitext.number(70) == ("siebzig", "seventy")


def test_no_made_pair_is_in_two_parts_and_each_german_sentence_has_one_translation(made):
    pairs = [pair for sides in made.parts.values() for pair in zip(*sides, strict=True)]
    assert {part: len(sides[0]) for part, sides in made.parts.items()} == bitext.MADE
    assert len({german for german, _ in pairs}) == len({english for _, english in pairs}) == len(pairs)


def test_made_sentences_put_the_verb_where_each_language_does(made):
    reasons = [pair for pair in zip(*made.parts["test"], strict=True) if pair[0].startswith("weil")]
    verbs = {german[0]: english[0] for german, english in bitext.VERBS}
    assert reasons
    assert all(verbs[german.split()[-1]] == english.split()[2] for german, english in reasons)


@pytest.fixture(scope="module")
def subwords(made):
    return Subwords.train([line for side in made.parts["train"] for line in side], 160)


def test_sentences_come_back_from_their_tokens(made, subwords):
    for sentence in (*made.parts["test"][0], *made.parts["test"][1]):
        tokens = subwords.encode(sentence)
        assert subwords.decode(tokens) == sentence
        assert not {PAD, UNKNOWN, BEGIN, END} & set(tokens)
        assert "".join(subwords.pieces(sentence)).replace("▁", " ").strip() == sentence


def test_a_vocabulary_has_as_many_pieces_as_asked_for_and_is_the_same_again(made, subwords):
    lines = [line for side in made.parts["train"] for line in side]
    again = Subwords.train(lines, 160)
    assert len(subwords) == len(again) == 160
    assert all(subwords.encode(line) == again.encode(line) for line in lines[:50])
    assert UNKNOWN in subwords.encode("§")


@pytest.mark.parametrize("pieces", [5, 100_000])
def test_a_vocabulary_that_cannot_be_is_refused(made, pieces):
    with pytest.raises(BadInput, match=f"pieces={pieces}"):
        Subwords.train(made.parts["train"][0], pieces)
