"""Which kernel is chosen, and what a kernel must do to pass its trial; kernels here are written by hand, in torch."""

import re
import sys
import types

import pytest
import torch  # noqa: TID253

from pacs.algo import token_logprobs
from pacs.algo.fused_logprobs import fused_token_logprobs
from pacs.errors import BadInput
from pacs.testing import make_config
from services.learner.kernel_trial import try_out
from services.learner.logprob_kernel import Installed, LogprobKernel, agreed, choose_kernel

ALL_THERE = Installed(cuda=True, triton=True, liger="0.8.5")


def choose(installed=ALL_THERE, wrong=None, **settings):
    return choose_kernel(make_config(settings), installed, lambda dtype: wrong)


def never(dtype):
    raise AssertionError("a kernel that is not wanted or not there was tried out")


@pytest.mark.parametrize("wanted", ["auto", "liger"])
@pytest.mark.parametrize("liger", ["0.8.5", "0.8.10", "0.9.0", "1.0.0"])
def test_liger_is_chosen_where_it_is_there_and_agrees(wanted, liger):
    kernel = choose(Installed(cuda=True, triton=True, liger=liger), **{"learner.logprob_kernel": wanted})
    assert kernel.compute is fused_token_logprobs
    assert str(kernel) == f"liger (liger-kernel {liger} agrees with torch on this GPU)"


def test_torch_is_chosen_where_it_is_asked_for_and_nothing_is_tried():
    kernel = choose_kernel(make_config({"learner.logprob_kernel": "torch"}), ALL_THERE, never)
    assert kernel.compute is token_logprobs
    assert str(kernel) == "torch (learner.logprob_kernel=torch)"


OBSTACLES = [
    (Installed(cuda=False, triton=True, liger="0.8.5"), {}, "needs a GPU"),
    (Installed(cuda=True, triton=True, liger=None), {}, "got liger-kernel missing, triton there .pip install"),
    (Installed(cuda=True, triton=False, liger="0.8.5"), {}, "got liger-kernel 0.8.5, triton missing .pip install"),
    (Installed(cuda=True, triton=True, liger="0.8.4"), {}, "needs liger-kernel>=0.8.5 .* got liger-kernel 0.8.4"),
    (ALL_THERE, {"learner.zero_stage": 3}, "learner.zero_stage=3"),
    (ALL_THERE, {"model.dtype": "bfloat16", "rollout.temperature": 0.6}, "bfloat16 .*rollout.temperature=0.6"),
]


@pytest.mark.parametrize(("installed", "settings", "reason"), OBSTACLES)
def test_without_being_asked_for_it_gives_way_to_torch_and_the_log_says_why(installed, settings, reason):
    kernel = choose_kernel(make_config(settings), installed, never)
    assert kernel.compute is token_logprobs
    assert re.search(rf"^torch \(.*{reason}", str(kernel))


@pytest.mark.parametrize(("installed", "settings", "reason"), OBSTACLES)
def test_asked_for_where_it_cannot_be_it_is_refused(installed, settings, reason):
    config = make_config({**settings, "learner.logprob_kernel": "liger"})
    with pytest.raises(
        BadInput, match=f"^learner.logprob_kernel=liger .*{reason}.* set learner.logprob_kernel to auto"
    ):
        choose_kernel(config, installed, never)


def test_a_kernel_that_disagrees_is_not_used():
    assert choose(wrong="it is off").compute is token_logprobs
    with pytest.raises(BadInput, match="it is off"):
        choose(wrong="it is off", **{"learner.logprob_kernel": "liger"})


@pytest.mark.parametrize("settings", [{}, {"rollout.temperature": 0.6}, {"model.dtype": "bfloat16"}])
def test_it_is_tried_in_the_runs_dtype(settings):
    tried = []
    config = make_config(settings)
    assert choose_kernel(config, ALL_THERE, tried.append).name == "liger"
    assert tried == [config.model.dtype]


def test_this_machine_is_looked_at_without_importing_the_kernel():
    before = set(sys.modules)
    assert Installed.here().cuda is torch.cuda.is_available()
    assert not {"triton", "liger_kernel"} & (set(sys.modules) - before)


@pytest.fixture
def liger(monkeypatch):
    """Installs a function in place of liger-kernel's."""

    def install(function):
        modules = {name: types.ModuleType(name) for name in ("liger_kernel", "liger_kernel.transformers")}
        functional = types.ModuleType("liger_kernel.transformers.functional")
        functional.liger_fused_linear_cross_entropy = function
        for name, module in {**modules, functional.__name__: functional}.items():
            monkeypatch.setitem(sys.modules, name, module)

    return install


def right(hidden_TD, weight_VD, token_T, **options):
    assert options["reduction"] == "none"
    return torch.nn.functional.cross_entropy((hidden_TD @ weight_VD.T).float(), token_T, reduction="none")


class FirstCoefficientForAll(torch.autograd.Function):
    """As liger-kernel had it."""

    @staticmethod
    def forward(ctx, loss_T):
        return loss_T.clone()

    @staticmethod
    def backward(ctx, grad_T):
        return grad_T[:1].expand_as(grad_T)


def wrong_gradient(*inputs, **options):
    return FirstCoefficientForAll.apply(right(*inputs, **options))


def wrong_token(hidden_TD, weight_VD, token_T, **options):
    return right(hidden_TD, weight_VD, token_T.roll(1), **options)


def slightly_off(*inputs, **options):
    return right(*inputs, **options) * 1.001


def not_finite(*inputs, **options):
    return right(*inputs, **options) * torch.nan


def does_not_compile(*inputs, **options):
    raise FileNotFoundError("no C compiler")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_right_kernel_passes(liger, dtype):
    liger(right)
    assert try_out(dtype, "cpu") is None


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (wrong_gradient, "it was off by 1.* in gradient of hidden states .*at most 0.0001"),
        (slightly_off, "it was off by 0.001 in log-probs .*at most 0.0001"),
        (wrong_token, "it was off by .* in log-probs"),
        (not_finite, "it was off by nan in log-probs"),
        (does_not_compile, "failed on a small case: FileNotFoundError: no C compiler"),
    ],
)
def test_a_wrong_one_does_not_and_says_what_is_wrong(liger, kernel, said):
    liger(kernel)
    assert re.search(said, try_out("float32", "cpu"))


@pytest.mark.parametrize(
    ("own", "on_torch", "agreed_on"), [("liger", 0, "liger"), ("liger", 1, "torch"), ("torch", 2, "torch")]
)
def test_all_ranks_use_one_kernel(own, on_torch, agreed_on):
    kernel = LogprobKernel(own, "its own reason")
    common = agreed(kernel, lambda mine: on_torch)
    assert common.name == agreed_on
    assert (common is kernel) == (own == agreed_on)
    assert ("1 other ranks" in str(common)) == (own != agreed_on)
