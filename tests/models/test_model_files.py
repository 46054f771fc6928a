"""Models on disk: a round trip to the bit, and what a damaged file or a full disk does."""

import os

import numpy as np
import pytest

import transformer_np as tnp

SRC, TGT = np.array([[3, 4, 5], [6, 0, 0]]), np.array([[1, 4, 9, 6], [1, 3, 0, 0]])


def transformer(**options):
    """A tiny Transformer."""
    return tnp.Transformer(10, 10, 6, 2, 1, 1, 8, 0.2, 11, **{"seed": 3, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float64", "norm": "pre", "positions": "learned"},
        {"tie_embeddings": True, "bias": False, "final_norm": True},
        {"tie_embeddings": "target", "pad_id": 2, "eps": 1e-3, "dtype": np.float16},
    ],
)
def test_round_trip(tmp_path, options):
    model = transformer(**options)
    path = tmp_path / "new folder" / "model.safetensors"
    model.save(path)
    loaded = tnp.load(path)
    assert [name for name, _ in loaded.named_parameters()] == [name for name, _ in model.named_parameters()]
    for p, q in zip(model.parameters(), loaded.parameters(), strict=True):
        assert p.data.dtype == q.data.dtype
        np.testing.assert_array_equal(p.data, q.data)
    y = loaded.eval()(SRC, TGT)
    np.testing.assert_array_equal(y, model.eval()(SRC, TGT))
    loaded.backward(np.ones_like(y))
    assert os.listdir(path.parent) == ["model.safetensors"]  # no temporary file is left
    loaded.save(path)
    assert {k: v for k, v in tnp.load(path).config.items() if k != "dtype"} == {
        k: v for k, v in model.config.items() if k != "dtype"
    }


def test_changes_override_what_the_model_was_made_with(tmp_path):
    transformer().save(tmp_path / "model")
    longer = tnp.load(tmp_path / "model", max_len=50, dropout=0.0)
    assert longer(np.full((1, 40), 5), np.full((1, 50), 5)).shape == (1, 50, 10)


DAMAGES = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[:-9],
    "cut within its header": lambda content: content[:50],
    "zeros": lambda content: bytes(len(content)),
    "longer": lambda content: content + b"x",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "model"
    transformer().save(path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(ValueError, match="is damaged or was not written by transformer_np"):
        tnp.load(path)


def test_files_of_others_and_missing_ones_are_refused(tmp_path):
    from safetensors.numpy import save_file

    with pytest.raises(FileNotFoundError, match="no model file at"):
        tnp.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="no model file at"):
        tnp.load(tmp_path)
    save_file({"weight": np.ones(3)}, tmp_path / "other")
    with pytest.raises(ValueError, match="was not written by transformer_np"):
        tnp.load(tmp_path / "other")
    save_file({"weight": np.ones(3)}, tmp_path / "unknown", {"transformer_np": '{"model": "Perceptron", "config": {}}'})
    with pytest.raises(ValueError, match="'Perceptron'"):
        tnp.load(tmp_path / "unknown")


def test_equal_models_give_equal_files(tmp_path):
    for name in ("one", "two"):
        transformer(seed=4).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path):
    resource = pytest.importorskip("resource")  # limits the size of files, as a full disk does; not on Windows
    path = tmp_path / "model"
    old = transformer(seed=1)
    old.save(path)
    content = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) // 2, limits[1]))
        with pytest.raises(OSError, match="too large"):
            transformer(seed=2).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["model"]
    np.testing.assert_array_equal(tnp.load(path).output.weight.data, old.output.weight.data)


def test_an_interruption_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    transformer(seed=1).save(path)
    content = path.read_bytes()

    def interrupted(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transformer(seed=2).save(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["model"]


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        transformer().save(tmp_path / "file" / "model")


def test_a_model_converted_after_it_was_made(tmp_path):
    model = transformer().astype("float64")
    model.save(tmp_path / "model")
    loaded = tnp.load(tmp_path / "model")
    assert loaded.output.weight.data.dtype == np.float64
    np.testing.assert_array_equal(loaded.eval()(SRC, TGT), model.eval()(SRC, TGT))
