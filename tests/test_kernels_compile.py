"""NVIDIA's own compiler accepts the kernels: NVRTC, which needs no GPU, makes machine code of them for two of them.

CuPy hands a source to NVRTC at its first launch, with the options below.
"""

import ctypes
import importlib.util
from pathlib import Path

import pytest

from transformer_np.kernels import HEADERS, source

OPTIONS = ("-ftz=true", "--device-as-default-execution-space")


def folder_of(package, inside):
    """The folder of a package of NVIDIA's, which holds no Python code."""
    spec = importlib.util.find_spec("nvidia")
    found = [Path(p, package, inside) for p in (spec.submodule_search_locations if spec else ())]
    found = [path for path in found if path.is_dir()]
    if not found:
        pytest.skip('needs NVRTC: pip install -e ".[nvrtc]", on Linux')
    return found[0]


@pytest.fixture(scope="module")
def compile_for():
    """Return a function that compiles a source for an architecture: machine code (None: refused) and what was said."""
    headers = folder_of("cuda_runtime", "include")
    nvrtc = ctypes.CDLL(str(next(folder_of("cuda_nvrtc", "lib").glob("libnvrtc.so.*"))))

    def compiled(source, architecture):
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
        options = [option.encode() for option in (*OPTIONS, f"-arch={architecture}", f"-I{headers}")]
        failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        texts = []
        for kind in ("ProgramLog", "CUBIN"):
            if kind == "CUBIN" and failed:
                texts.append(None)
                continue
            assert not getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
            text = ctypes.create_string_buffer(size.value)
            assert not getattr(nvrtc, f"nvrtcGet{kind}")(program, text)
            texts.append(text.raw)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        log, code = texts
        return code, log.rstrip(b"\0").decode()

    return compiled


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])  # A100, H100 and H200
@pytest.mark.parametrize("dtype", HEADERS)
def test_every_kernel_compiles(compile_for, dtype, architecture):
    code, log = compile_for(source(dtype), architecture)
    assert log == ""  # no warning either
    assert code.startswith(b"\x7fELF")
    for line in source(dtype).splitlines():
        if "__global__" in line:
            assert line.split("(")[0].split()[-1].encode() in code


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("total = over_block(total, false);", "total = over_block(total);", "no instance of function template"),
        ("A top = LOWEST, total = 0;", "A top = LOWEST;", 'identifier "total" is undefined'),
        ("dx[j] = T((exp(", "dx[j] = T((exb(", 'identifier "exb" is undefined'),
    ],
)
def test_a_broken_kernel_is_refused(compile_for, right, wrong, message):
    whole = source("float32")
    assert right in whole
    code, log = compile_for(whole.replace(right, wrong), "sm_80")
    assert code is None
    assert message in log
