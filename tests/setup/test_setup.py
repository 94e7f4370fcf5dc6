"""cmake/setup.sh: what it installs, what it says when it cannot, and when it does nothing."""

from pathlib import Path

import pytest

from tests.setup.checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def set_up(checkout: Checkout) -> None:
    result = checkout.run("cmake/setup.sh")
    assert result.code == 0, result


@pytest.mark.parametrize("script", ["cmake/setup.sh", "bench.sh", "test.sh", ".ci/run"])
def test_without_root_missing_packages_are_named_in_one_line(checkout, script):
    result = checkout.run(script, MISSING="libfmt-dev libgloo-dev")
    assert result.code == 2, result
    assert result.out == ""
    (line,) = result.err_lines
    assert line.endswith("sudo apt-get install -y libfmt-dev libgloo-dev")
    assert checkout.calls("apt-get") == []
    assert checkout.calls("uv") == []


def test_as_root_missing_packages_are_installed(checkout):
    checkout.stand_in("id", "echo 0")
    result = checkout.run("cmake/setup.sh", MISSING="libfmt-dev libgloo-dev")
    assert result.code == 0, result
    (call,) = [call for call in checkout.calls("apt-get") if "--simulate" not in call]
    assert call.endswith("install -y --no-install-recommends libfmt-dev libgloo-dev")


@pytest.mark.parametrize("known", ["", "E: Unable to locate package libfmt-dev"])
def test_a_failed_package_installation_is_tried_after_an_update_and_named(checkout, known):
    checkout.stand_in("id", "echo 0")
    checkout.stand_in(
        "apt-get",
        f'case "$*" in *update*) exit 0 ;; *--simulate*) [ -z "{known}" ]; exit ;; esac\n'
        'echo "E: no such host"; exit 100',
    )
    result = checkout.run("cmake/setup.sh", MISSING="libfmt-dev")
    assert result.code == 2, result
    calls = [call for call in checkout.calls("apt-get") if "--simulate" not in call]
    updates = [("update" in call) for call in calls]
    assert updates == ([True, False] if known else [False, True, False])
    assert any("E: no such host" in line for line in result.err_lines)
    assert "Debian packages could not be installed" in result.err_lines[-1]
    assert checkout.calls("uv") == []


def test_everything_is_written_inside_the_checkout(checkout, tmp_path):
    set_up(checkout)
    assert sorted(path.name for path in checkout.root.iterdir() if path.name[0] == ".") == [
        ".cache",
        ".ci",
        ".venv",
    ]
    assert list((tmp_path / "home").iterdir()) == []


def test_a_second_call_installs_nothing(checkout):
    set_up(checkout)
    before = checkout.calls("uv")
    assert before
    set_up(checkout)
    assert checkout.calls("uv") == before


def test_a_changed_pin_is_installed_into_the_environment_that_is_there(checkout):
    set_up(checkout)
    before = len(checkout.calls("uv"))
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("# another pin\n")
    set_up(checkout)
    after = checkout.calls("uv")[before:]
    assert after
    assert not any(call.startswith("uv venv") for call in after)


DAMAGES = {
    "a package is gone": lambda venv: (venv / "lib/python3.10/site-packages/bitsandbytes").rename(
        venv / "elsewhere"
    ),
    "libtorch is gone": lambda venv: (
        venv / "lib/python3.10/site-packages/torch/lib/libtorch_cpu.so"
    ).unlink(),
    "its python does not start": lambda venv: (venv / "bin/python").write_text("#!/nowhere\n"),
    "the installation was interrupted": lambda venv: (venv / "stepscope-setup").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_environment_is_made_anew(checkout, damage):
    set_up(checkout)
    before = len(checkout.calls("uv"))
    DAMAGES[damage](checkout.root / ".venv")
    set_up(checkout)
    assert checkout.calls("uv")[before].startswith("uv venv --clear")
    set_up(checkout)
    assert len(checkout.calls("uv")) == 2 * before


def test_a_failed_installation_says_what_to_do_and_is_not_taken_for_complete(checkout):
    result = checkout.run("cmake/setup.sh", UV_FAILS="1")
    assert result.code == 2, result
    assert "error: no such host" in result.err
    assert "Python packages could not be installed: check the network" in result.err_lines[-1]
    assert not (checkout.root / ".venv/stepscope-setup").exists()
    set_up(checkout)


def test_two_calls_at_once_install_once(checkout):
    first = checkout.start("cmake/setup.sh", UV_SECONDS="1")
    second = checkout.start("cmake/setup.sh", UV_SECONDS="1")
    errors = first.communicate(timeout=60)[1] + second.communicate(timeout=60)[1]
    assert (first.returncode, second.returncode) == (0, 0), errors
    assert sum(call.startswith("uv venv") for call in checkout.calls("uv")) == 1
    assert "waiting for another script" in errors


def test_a_python_that_does_not_run_or_is_too_old_is_passed_over(checkout):
    checkout.stand_in("python3", 'echo "pyenv: python3: command not found" >&2; exit 127')
    checkout.stand_in("python3.13", 'printf "/old/python\\t3.9.1\\t0\\n"')
    result = checkout.run("cmake/setup.sh")
    assert result.code == 0, result
    assert result.err_lines[0] == "setup 1/4: the Debian packages are there"
    (line,) = [line for line in result.err_lines if line.startswith("setup 2/4: Python ")]
    assert "3.9.1" not in line
    assert checkout.calls("python3")
    assert checkout.calls("python3.13")


@pytest.mark.parametrize("variable", ["PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_environment_of_another_python_does_no_harm(checkout, variable):
    result = checkout.run("cmake/setup.sh", **{variable: "/nowhere"})
    assert result.code == 0, result


@pytest.mark.skipif(Path("/usr/local/cuda/bin/nvcc").exists(), reason="this machine has a toolkit")
def test_the_cuda_toolkit_is_installed_where_the_system_has_none(checkout):
    assert checkout.run("cmake/setup.sh", STEPSCOPE_CUDA="AUTO").code == 0
    assert any("--group cuda" in call for call in checkout.calls("uv"))


def test_a_cuda_13_of_the_system_is_used_and_an_older_one_is_not(checkout):
    checkout.stand_in("nvcc13", 'echo "Cuda compilation tools, release 13.0, V13.0.88"')
    nvcc = str(checkout.system / "nvcc13")
    assert checkout.run("cmake/setup.sh", STEPSCOPE_CUDA="AUTO", CUDACXX=nvcc).code == 0
    assert not any("--group cuda" in call for call in checkout.calls("uv"))
    assert checkout.calls("nvcc13")


def test_an_unknown_value_of_stepscope_cuda_is_refused(checkout):
    result = checkout.run("cmake/setup.sh", STEPSCOPE_CUDA="yes")
    assert result.code == 2
    assert result.err_lines == ["setup.sh: STEPSCOPE_CUDA is 'yes': it takes AUTO, ON or OFF"]


def test_arguments_are_checked(checkout):
    assert checkout.run("cmake/setup.sh", "--help").out.startswith("usage: cmake/setup.sh")
    result = checkout.run("cmake/setup.sh", "--fast")
    assert result.code == 2
    assert len(result.err_lines) == 1
    assert checkout.calls("uv") == []
