"""Documentation of public functions: each argument is documented, and each example gives what it says."""

import dataclasses
import inspect
import re

import jit_attention as ja
import pytest
from doc_examples import EVERYTHING, run
from seeded import some

SECTIONS = "Args|Attributes|Returns|Raises|Thread safety|Examples"
FUNCTIONS = {name: value for name, value in EVERYTHING.items() if callable(value) and not inspect.isclass(value)}
#: Their documentation says that the arguments are those of another function.
AS_ANOTHER = {"Attention.__call__", "Attention.kernel", "prepare_backward"}


def sections(text):
    """Sections of a docstring in Google's style, by title."""
    parts = re.split(rf"^({SECTIONS}):\n", inspect.cleandoc(text or ""), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def entries(section):
    """Names that a section documents."""
    return re.findall(r"^    (\w+): ", section, flags=re.MULTILINE)


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_has_documentation_that_begins_with_a_sentence(name):
    text = inspect.getdoc(EVERYTHING[name])
    assert text and text.split("\n\n")[0].rstrip()[-1] in ".:!", text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_has_a_signature_and_documents_each_argument(name):
    signature = inspect.signature(FUNCTIONS[name])
    if any(name.endswith(f".{other}") for other in AS_ANOTHER):
        return
    wanted = [parameter for parameter in signature.parameters if parameter not in ("self", "cls")]
    found = sections(FUNCTIONS[name].__doc__)
    assert entries(found.get("Args", "")) == wanted
    assert "Examples" in found, "no example"
    assert not wanted or "Raises" in found or name.endswith((".then",))


DATACLASSES = [ja.AttentionSpec, ja.BlockMask, ja.FunctorText, ja.Refusal, ja.cache.Entry, ja.emulator.Finding,
               ja.emulator.Output, ja.emulator.Parameter, ja.emulator.TensorMap]  # fmt: skip


@pytest.mark.parametrize("kind", DATACLASSES)
def test_each_field_is_documented(kind):
    names = [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    assert entries(sections(kind.__doc__)["Attributes"]) == names
    assert entries(sections(ja.QuantizedQkv.__doc__)["Attributes"]) == list(ja.QuantizedQkv._fields)


@pytest.mark.parametrize("kind", [ja.Attention, ja.Kernel, ja.Device, ja.TileMap, ja.LaunchTrace, ja.trace])
def test_classes_of_the_extension_have_signatures_and_documentation(kind):
    assert inspect.getdoc(kind)
    for name, member in vars(kind).items():
        if not name.startswith("_"):
            assert inspect.getdoc(member), name


def examples():
    for name, value in EVERYTHING.items():
        if ">>>" in (value.__doc__ or ""):
            yield name


def skip_without_what_it_needs(name):
    text = EVERYTHING[name].__doc__
    for module in ("torch", "transformers"):
        if re.search(rf"\b{module}\.\w+", text[text.index(">>>"):]):
            pytest.importorskip(module, reason=f"needs {module}")
    if name.endswith("register_with_torch") and not hasattr(pytest.importorskip("torch").nn.attention,
                                                            "register_flash_attention_impl"):
        pytest.skip("needs a PyTorch that can register implementations")
    if name.endswith("register_continuous_batching"):
        version = pytest.importorskip("transformers").__version__
        if tuple(map(int, version.split(".")[:2])) < (5, 23):
            pytest.skip(f"needs transformers 5.23, not {version}")


@pytest.mark.parametrize("name", some(examples(), 2))
def test_examples_give_what_they_say(name, tmp_path, emulated, run_python):
    if not emulated:
        pytest.skip("examples are NumPy's, which a process with a GPU does not compute: JIT_ATTENTION_DEVICE=emulated:sm_90a")
    skip_without_what_it_needs(name)
    if re.search(r"\.cache\.|register_|write_pack", name):  # a process and a cache of their own
        told = run_python(f"import doc_examples; print(doc_examples.run({name!r}, {str(tmp_path)!r}), end='')",
                          JIT_ATTENTION_CACHE_DIR=str(tmp_path / "cache"))
    else:
        told = run(name, str(tmp_path))
    assert not told


def test_every_example_runs():
    for name in examples():
        assert "+SKIP" not in EVERYTHING[name].__doc__, name
