"""Laws of `lib.data.speech`: features by Kaldi's definition, corpora in every form, and what is refused by name."""

import gzip
import json
import tracemalloc
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from lib.base import ROOT, BadInput
from lib.data import sources, speech
from lib.data.__main__ import main
from lib.data.speech import cache, corpora, voices
from lib.data.speech.filterbank import frames, log_mel
from lib.data.speech.utterances import Utterances, all_trials, hold_out, read_trials

SHARED = ROOT.parent / "shared" / "data" / "speech"
SMALL = voices.Sizes(train_speakers=3, test_speakers=2, sessions=2, utterances=2, seconds=0.6)


def noise(seconds=1.0, seed=0):
    return (3000 * np.random.default_rng(seed).normal(size=int(16000 * seconds))).astype(np.int16)


# Features


def by_hand(samples):
    """Kaldi's definition, in NumPy."""
    count = 1 + (len(samples) - 400) // 160
    rows = np.stack([samples[160 * i : 160 * i + 400] for i in range(count)]).astype(float)
    rows -= rows.mean(1, keepdims=True)
    rows = np.concatenate([rows[:, :1] * 0.03, rows[:, 1:] - 0.97 * rows[:, :-1]], 1)
    rows *= (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    power = np.abs(np.fft.rfft(rows, 512)) ** 2

    def mel(hertz):
        return 1127 * np.log(1 + hertz / 700)

    edges = np.linspace(mel(20), mel(8000), 42)
    at, width = mel(np.arange(256) * 31.25)[:, None], edges[1] - edges[0]
    triangles = np.clip(np.minimum(at - edges[:-2], edges[2:] - at) / width, 0, None)
    return np.log(power[:, :256] @ triangles)


def test_the_filter_bank_is_kaldis():
    samples = noise()
    features = log_mel(samples)
    assert features.shape == (98, 40)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, by_hand(samples), atol=2e-4)
    assert [frames(n) for n in (399, 400, 559, 560, 16000)] == [0, 1, 1, 2, 98]


def test_an_utterance_has_no_mean_and_the_mean_is_kept():
    long, short = noise(0.8), noise(0.6, seed=1)
    both = Utterances.of([long, short], [0, 1])
    np.testing.assert_allclose(both[1].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(both[1] + both.means[1], log_mel(short), atol=1e-5)
    assert [len(both), len(both[0]), len(both[1])] == [2, 78, 58]


def test_a_crop_is_consecutive_and_a_short_utterance_is_repeated():
    features = np.repeat(np.arange(7, dtype=np.float32)[:, None], 40, 1)
    two = Utterances(features, np.array([0, 5, 7]), np.array([0, 1]), np.zeros((2, 40), np.float32))
    cut = two.crops([0, 0, 1], 3, [0.0, 0.99, 0.1])[:, :, 0]
    assert cut.tolist() == [[0, 1, 2], [2, 3, 4], [5, 6, 5]]
    assert {two.crops([0], 3, [u])[0, 0, 0] for u in np.linspace(0, 0.999, 50)} == {0, 1, 2}


# Made voices


def test_voices_are_the_same_for_a_seed_and_a_speaker_does_not_depend_on_how_many_there_are():
    first, again = voices.recordings(3, 1, SMALL), voices.recordings(3, 1, SMALL)
    assert all(np.array_equal(a, b) for x, y in zip(first, again, strict=True) for a, b in zip(x, y, strict=True))
    assert not np.array_equal(first[0][0], voices.recordings(4, 1, SMALL)[0][0])
    assert not np.array_equal(first[0][0], voices.recordings(3, 2, SMALL)[0][0])
    made = voices.synthetic(SMALL)
    more = voices.synthetic(replace(SMALL, train_speakers=2, test_speakers=3))
    np.testing.assert_array_equal(made.train[11], more.test[3])  # both are speaker 2's last utterance
    assert made.train.speakers.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert len(made.test) == 8


def test_trials_join_sessions_and_two_speakers_ten_times_as_often():
    speakers, sessions = np.repeat([0, 1, 2, 3], 4), np.tile([0, 0, 1, 1], 4)
    trials = all_trials(speakers, sessions)
    first, second = trials.pairs.T
    assert (trials.same == (speakers[first] == speakers[second])).all()
    assert (sessions[first] != sessions[second])[trials.same].all()
    assert trials.same.sum() == 4 * 4
    assert (~trials.same).sum() == 96  # all there are, fewer than ten times 16
    assert len({tuple(pair) for pair in trials.pairs.tolist()}) == len(trials.pairs)


def test_harder_trials_have_two_speakers_of_one_group_and_the_same_ones_of_one_speaker():
    speakers, sessions = np.repeat([0, 1, 2, 3], 4), np.tile([0, 0, 1, 1], 4)
    groups = np.array(["m", "f", "m", "f"])[speakers]
    free, hard = all_trials(speakers, sessions), all_trials(speakers, sessions, groups)
    assert (groups[hard.pairs[:, 0]] == groups[hard.pairs[:, 1]]).all()
    assert not (groups[free.pairs[:, 0]] == groups[free.pairs[:, 1]]).all()
    assert (~hard.same).sum() == 2 * 16
    np.testing.assert_array_equal(hard.pairs[hard.same], free.pairs[free.same])
    with pytest.raises(BadInput, match="need two speakers of one group"):
        all_trials(speakers, sessions, speakers)


def test_trials_of_many_utterances_are_drawn_of_all_pairs_without_a_list_of_them():
    speakers = np.random.default_rng(0).permutation(np.arange(1500) // 3)
    tracemalloc.start()
    trials = all_trials(speakers, seed=2)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    first, second = np.triu_indices(len(speakers), 1)  # 1.1 million pairs
    same = speakers[first] == speakers[second]
    drawn = np.random.default_rng(2).choice(np.flatnonzero(~same), 10 * same.sum(), replace=False)
    chosen = np.sort(np.concatenate([np.flatnonzero(same), drawn]))
    np.testing.assert_array_equal(trials.pairs, np.stack([first[chosen], second[chosen]], 1))
    assert most < first.nbytes / 4


def test_made_voices_of_one_pitch_range_are_both_above_the_median_pitch_or_both_below():
    made = voices.synthetic(replace(SMALL, train_speakers=2, test_speakers=6))
    pitches = np.array([voices.voice(np.random.default_rng([0, 2 + k])).pitch for k in range(6)])
    first, second = pitches[made.test.speakers][made.trials["same_pitch_range"].pairs].T
    assert ((first > 130) == (second > 130)).all()
    assert {bool(high) for high in pitches > 130} == {True, False}
    drawn = [voices.voice(np.random.default_rng(seed)).pitch for seed in range(400)]
    assert np.mean(np.array(drawn) > 130) == pytest.approx(0.5, abs=0.07)


def test_voices_are_made_once_and_the_same_bytes_are_read_after_that(tmp_path, monkeypatch):
    made = cache.cached(SMALL, 0, tmp_path)
    same_speech(made, voices.synthetic(SMALL))
    (path,) = tmp_path.iterdir()
    monkeypatch.setattr(cache, "synthetic", None)  # from here on nothing can be made
    cache.cached.cache_clear()
    again = cache.cached(SMALL, 0, tmp_path)
    same_speech(again, made)
    for name, trials in made.trials.items():
        np.testing.assert_array_equal(again.trials[name].pairs, trials.pairs)
        np.testing.assert_array_equal(again.trials[name].same, trials.same)
    assert again.trials.keys() == made.trials.keys()
    monkeypatch.undo()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # a bit within the features
    path.write_bytes(content)
    cache.cached.cache_clear()
    same_speech(cache.cached(SMALL, 0, tmp_path), made)
    assert path.read_bytes() != content
    for where, bit in ((8, 2), (9 + 60, 0)):  # the length of an array's header, which then hides its first numbers
        content = bytearray(path.read_bytes())
        content[content.index(b"\x93NUMPY") + where] ^= 1 << bit
        path.write_bytes(content)
        cache.cached.cache_clear()
        same_speech(cache.cached(SMALL, 0, tmp_path), made)
    cache.cached.cache_clear()


def test_what_voices_depend_on_is_in_the_name_of_their_file(monkeypatch):
    name = cache.fingerprint(SMALL, 0)
    assert name == cache.fingerprint(SMALL, 0)
    others = [cache.fingerprint(replace(SMALL, seconds=0.7), 0), cache.fingerprint(SMALL, 1)]
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX2")
    assert len({name, *others, cache.fingerprint(SMALL, 0)}) == 4


def test_speakers_held_out_are_judged_on_and_not_learned_from():
    made = voices.synthetic(replace(SMALL, train_speakers=5))
    split = hold_out(made, 2, seed=3)
    assert (split.speakers, len(split.train), len(split.test)) == (3, 12, 8)
    assert split.train.speakers.tolist() == np.repeat([0, 1, 2], 4).tolist()
    assert split.train.features is made.train.features is split.test.features  # a memory map is not read into memory
    assert split.train.lengths.tolist() == [len(split.train[i]) for i in range(12)]
    parts = [{part[i].tobytes() for i in range(len(part))} for part in (split.train, split.test, made.test)]
    whole = {made.train[i].tobytes() for i in range(len(made.train))}
    assert parts[0] | parts[1] == whole
    assert not parts[0] & parts[1]
    assert not whole & parts[2]
    pairs, same = split.trials["validation"].pairs, split.trials["validation"].same
    assert (split.test.sessions[pairs[same]][:, 0] != split.test.sessions[pairs[same]][:, 1]).all()
    assert any(not np.array_equal(hold_out(made, 2, seed).test.means, split.test.means) for seed in range(3))
    with pytest.raises(BadInput, match="4 speakers held out of 5: expected 2 to 3"):
        hold_out(made, 4)


def test_trials_and_splits_of_a_seed_below_0_are_refused():
    with pytest.raises(BadInput, match="seed=-1: expected a whole number, at least 0"):
        all_trials(np.repeat([0, 1], 2), seed=-1)
    with pytest.raises(BadInput, match="seed=-1: expected a whole number, at least 0"):
        hold_out(voices.synthetic(replace(SMALL, train_speakers=5)), 2, seed=-1)


# Corpora


def write_wav(path: Path, samples, rate=16000):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, "<i2").tobytes())


@pytest.fixture
def places(tmp_path, monkeypatch):
    (tmp_path / "companion").mkdir()
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path / "companion"))
    return sources.Places(data=tmp_path / "data")


OCEAN = {"train": {"01": "0001", "02": "0001", "03": "0003"}, "test": {"04": "0002", "05": "0004", "06": "0004"}}
SEX = {"0001": "m", "0002": "f", "0003": "f", "0004": "f"}


@pytest.fixture
def ocean(places, tmp_path):
    """speechocean762 as published: three clips in each part."""
    root = tmp_path / "companion" / "speechocean762"
    for part, clips in OCEAN.items():
        for utterance, speaker in clips.items():
            write_wav(root / f"WAVE/SPEAKER{speaker}/{utterance}.WAV", noise(0.6 + int(utterance) / 50, int(utterance)))
        (root / part).mkdir()
        scp = [f"{u}\tWAVE/SPEAKER{s}/{u}.WAV\n" for u, s in clips.items()]
        (root / part / "wav.scp").write_text("".join(scp))
        (root / part / "utt2spk").write_text("".join(f"{u} {s}\n" for u, s in clips.items()))
        (root / part / "spk2gender").write_text("".join(f"{s} {SEX[s]}\n" for s in sorted(set(clips.values()))))
    return root


def pack(ocean: Path, root: Path):
    """The same clips, one sound file a speaker with gaps between them."""
    speakers = {}
    for part, clips in OCEAN.items():
        for speaker in sorted(set(clips.values())):
            mine, samples, entries = [u for u in clips if clips[u] == speaker], [], []
            for utterance in mine:
                clip = corpora.read_wav(ocean / f"WAVE/SPEAKER{speaker}/{utterance}.WAV")
                entries.append({"id": utterance, "start": sum(map(len, samples)), "n": len(clip)})
                samples += [clip, np.zeros(800, np.int16)]
            whole, name = np.concatenate(samples), f"audio/{speaker}.flac"
            (root / "audio").mkdir(parents=True, exist_ok=True)
            soundfile.write(root / name, whole, 16000)
            speakers[speaker] = {"file": name, "split": part, "n_samples": len(whole), "clips": entries}
            speakers[speaker]["gender"] = SEX[speaker]
    (root / "index.json").write_text(json.dumps({"sample_rate": 16000, "speakers": speakers}))


def same_speech(left, right):
    for part in ("train", "test"):
        for array in ("features", "starts", "speakers", "means"):
            np.testing.assert_array_equal(getattr(getattr(left, part), array), getattr(getattr(right, part), array))


def test_both_forms_of_speechocean762_and_the_kept_features_are_the_same(places, ocean, tmp_path, monkeypatch):
    first = corpora_load("speechocean762", places)
    np.testing.assert_allclose(
        first.test[0] + first.test.means[0], log_mel(corpora.read_wav(ocean / "WAVE/SPEAKER0002/04.WAV")), atol=1e-5
    )
    assert (first.train.speakers.tolist(), first.test.speakers.tolist()) == ([0, 0, 1], [0, 1, 1])
    assert first.trials["one_session"].pairs[first.trials["one_session"].same].tolist() == [[1, 2]]
    assert first.trials["same_sex"].same.tolist() == [False, False, True]  # both test speakers are women
    other = tmp_path / "other"
    pack(ocean, other / "speech" / "speechocean762")
    monkeypatch.setenv("COMPANION_DATA", str(other))
    same_speech(corpora_load("speechocean762", places), first)
    monkeypatch.delenv("COMPANION_DATA")
    same_speech(corpora_load("speechocean762", places), first)


def corpora_load(name, places):
    return speech.recorded(name, places)


def test_the_program_says_what_there_is(places, ocean, capsys):
    assert main(["speechocean762"], places) in (0, 1)  # 1: data/ lacks the image sets here
    assert "6 examples" in capsys.readouterr().out


def test_without_files_one_line_says_where_to_get_them(places, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["speechocean762"], places)
    assert stop.value.code == 2
    line = capsys.readouterr().err
    assert "not downloaded by this project: get it from https://www.openslr.org/101/" in line
    assert "holds speechocean762 or speech/speechocean762 in COMPANION_DATA" in line
    with pytest.raises(BadInput, match="no corpus called 'vox'; there are: synthetic, speechocean762, voxceleb"):
        speech.load("vox")


def flipped(content: bytes, place: int, bit: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: write_wav(path, noise(), rate=8000), "has 8000 Hz, 1 channels, 16 bits; expected 16000 Hz"),
        (lambda path: write_wav(path, noise(0.4)), r"has 0\.40 s; an utterance needs 0\.5 s"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1002]), r"is cut off: \d+ of \d+ samples are there"),
        (lambda path: path.write_bytes(b"RIFF"), "is no whole .wav file"),
        (lambda path: path.write_bytes(flipped(path.read_bytes(), 17, 7)), "is no whole .wav file"),
        (lambda path: path.write_bytes(b"no sound at all, only words"), "is no whole .wav file"),
        (lambda path: path.unlink(), "does not exist"),
    ],
)
def test_a_spoilt_file_is_named_and_nothing_is_kept(places, ocean, spoil, said):
    path = ocean / "WAVE/SPEAKER0004/05.WAV"
    spoil(path)
    with pytest.raises(BadInput, match=said) as refused:
        speech.prepare("speechocean762", places)
    assert str(path) in str(refused.value)
    assert not (places.data / "speechocean762" / "official" / "test_features.npy").exists()


def test_a_speaker_in_both_parts_and_an_utterance_of_nobody_are_refused(places, ocean):
    table = ocean / "test" / "utt2spk"
    table.write_text("04 0001\n05 0004\n06 0004\n")
    sexes = ocean / "test" / "spk2gender"
    sexes.write_text("0001 f\n0002 f\n0004 f\n")
    with pytest.raises(BadInput, match="the speaker 0001 is in both parts"):
        speech.prepare("speechocean762", places)
    table.write_text("04 0002\n05 0004\n")
    with pytest.raises(BadInput, match="utt2spk names no speaker of utterance 06"):
        speech.prepare("speechocean762", places)
    table.write_text("04 0002\n05 0004\n06 0004\n")
    sexes.write_text("0004 f\n")
    with pytest.raises(BadInput, match="spk2gender says nothing of the speaker 0002"):
        speech.prepare("speechocean762", places)


VOX_TRIALS = {
    "veri_test2.txt": "1 id1/a/00001.wav id1/b/00001.wav\n0 id1/a/00001.wav id2/c/00001.wav\n",
    "list_test_all2.txt": "0 id2/c/00001.wav id1/b/00001.wav\n1 id1/b/00001.wav id1/a/00001.wav\n",
    "list_test_hard2.txt": "0 id1/a/00001.wav id2/c/00001.wav\n1 id1/a/00001.wav id1/b/00001.wav\n",
}


@pytest.fixture
def vox(places, tmp_path):
    root = tmp_path / "companion" / "voxceleb"
    for file in ("id9/x/00001", "id9/x/00002", "id8/y/00001"):
        write_wav(root / f"vox2_dev/wav/{file}.wav", noise(0.6))
    for seed, file in enumerate(("id1/a/00001", "id1/b/00001", "id2/c/00001", "id3/d/00001")):
        write_wav(root / f"vox1/wav/{file}.wav", noise(0.6, seed))
    for name, text in VOX_TRIALS.items():
        (root / name).write_text(text)
    return root


def test_voxceleb_is_learned_from_vox2_and_tested_on_the_three_lists(places, vox):
    data = corpora_load("voxceleb", places)
    assert data.train.speakers.tolist() == [0, 1, 1]  # id8, id9
    assert data.test.speakers.tolist() == [0, 0, 1]  # id3 is in no list
    assert {name: (t.pairs.tolist(), t.same.tolist()) for name, t in data.trials.items()} == {
        "vox1_o": ([[0, 1], [0, 2]], [True, False]),
        "vox1_e": ([[2, 1], [1, 0]], [False, True]),
        "vox1_h": ([[0, 2], [0, 1]], [False, True]),
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "0 id1/a/00001.wav id7/c/00001.wav",
            "veri_test2.txt, line 3 names the speaker id7, of whom there is no",
        ),
        ("1 id1/a/00001.wav id1/z/00001.wav", r"id1/z/00001.wav does not exist"),
        ("1 id1/a/00001.wav id2/c/00001.wav", "line 3: 1 says one speaker, found"),
        ("2 id1/a/00001.wav id2/c/00001.wav", "line 3: expected `1 file file` or `0 file file`, found '2"),
        ("1 id1/a/00001.wav", "line 3: expected"),
    ],
)
def test_a_trial_of_somebody_unknown_is_named(places, vox, line, said):
    with (vox / "veri_test2.txt").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BadInput, match=said):
        speech.prepare("voxceleb", places)


def test_a_list_may_be_gzipped(tmp_path):
    path = tmp_path / "list.txt.gz"
    path.write_bytes(gzip.compress(VOX_TRIALS["veri_test2.txt"].encode()))
    assert read_trials(path)[1] == (False, "id1/a/00001.wav", "id2/c/00001.wav")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_the_real_list_of_vox1_o():
    trials = read_trials(SHARED / "voxceleb1" / "veri_test2.txt.gz")
    assert len(trials) == 37611
    assert len({file.split("/")[0] for _, *files in trials for file in files}) == 40
    assert sum(same for same, _, _ in trials) == 18802


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_the_packed_corpus_has_20_clips_of_125_speakers_in_each_part():
    corpus = corpora.speechocean762_packed(SHARED / "speechocean762")
    for clips in (corpus.train, corpus.test):
        assert len(clips) == 2500
        assert len({clip.speaker for clip in clips}) == 125
    clip = corpus.test[-1]
    assert clip.read().shape == (clip.samples,)
    assert clip.read().std() > 30  # sound, not silence
    assert corpus.trials["one_session"].same.sum() == corpus.trials["same_sex"].same.sum() == 125 * 190
    sexes = np.array([clip.sex for clip in corpus.test])
    assert (sexes == "m").sum() == 67 * 20
    left, right = sexes[corpus.trials["same_sex"].pairs].T
    assert (left == right).all()
