"""The one YAML file of a run, typed and frozen. Every field says its unit; unknown keys are refused.

`config_file.load_config` reads it; `docs/configuration.md` is generated from these descriptions.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "AlgorithmSection",
    "ControlSection",
    "DataSection",
    "EvaluationSection",
    "LearnerSection",
    "LoraSection",
    "MathSection",
    "ModelSection",
    "PublicationSection",
    "RedisSection",
    "ResetSection",
    "RolloutSection",
    "RunConfig",
    "RunSection",
    "SandboxSection",
    "VerifierSection",
]


class Section(BaseModel):
    """A frozen part of the file in which every key is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSection(Section):
    """The run as a whole."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the run; its folder and Redis keys."
    )
    directory: Path = Field(Path("runs"), description="Folder that holds one folder a run.")
    seed: int = Field(0, ge=0, description="Fixes the order of prompts and the learner's random numbers.")
    max_steps: int = Field(ge=1, description="Batches to train on, in all, resumed ones included.")
    groups_per_step: int = Field(ge=1, description="Prompt groups in one batch.")
    max_staleness: int = Field(
        1,
        ge=0,
        description="Batches the policy that sampled a group may be behind; groups behind further are sampled anew. "
        "0: strictly in turn, repeatable order.",
    )

    @property
    def path(self) -> Path:
        """The run's own folder."""
        return self.directory / self.name


NEVER_ADAPTED = ("lm_head", "embed_tokens")  # log-probs are computed from the head's own weights, and both may be one


class LoraSection(Section):
    """Low-rank adapters, trained in place of the weights. See [design 0008](design/0008-adapters.md)."""

    rank: int = Field(0, ge=0, description="r of W + (alpha/r)·B·A; 0: no adapters, all weights are trained.")
    alpha: float = Field(32.0, gt=0, description="Numerator of the factor on B·A.")
    target_modules: list[str] = Field(
        default_factory=list,
        description="Linear layers to adapt, by the last part of their names, as q_proj; empty: all but the head.",
    )

    @model_validator(mode="after")
    def _settings_have_an_effect(self) -> Self:
        for key in ("alpha", "target_modules"):
            value = getattr(self, key)
            if not self.rank and value != type(self).model_fields[key].get_default(call_default_factory=True):
                raise ValueError(
                    f"model.lora.{key}={value} has no effect with model.lora.rank=0; set model.lora.rank or remove it"
                )
        return self

    @model_validator(mode="after")
    def _targets_can_be_adapted(self) -> Self:
        refused = [name for name in self.target_modules if name in NEVER_ADAPTED or not name.isidentifier()]
        if refused:
            raise ValueError(
                "model.lora.target_modules must be last parts of names of linear layers other than "
                f"{' and '.join(NEVER_ADAPTED)}, got {refused}; remove them"
            )
        return self


class ModelSection(Section):
    """The policy to start from."""

    path: Path = Field(description="Folder in Hugging Face format: configuration, weights, tokenizer.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of weights and arithmetic, in learner and engine."
    )
    max_tokens: int = Field(1024, ge=16, description="Longest prompt plus response, tokens.")
    lora: LoraSection = LoraSection()


class DataSection(Section):
    """Where problems come from: a file or a reasoning_gym family."""

    source: Literal["file", "reasoning_gym"] = Field("file", description="Kind of source.")
    path: Path | None = Field(None, description="JSON-lines or parquet file with the problems (source: file).")
    heldout_path: Path | None = Field(None, description="File with the problems to evaluate on.")
    heldout_rows: int = Field(0, ge=0, description="Without heldout_path: rows set apart from `path`, chosen by seed.")
    prompt_field: str = Field("prompt", description="Field that holds the problem's text.")
    messages_field: str = Field("messages", description="Field that holds a chat; used where the row has it.")
    answer_field: str = Field("answer", description="Field that holds the gold answer.")
    id_field: str = Field("id", description="Field that holds the row's id; the row number where missing.")
    task_fields: list[str] = Field(
        default_factory=list,
        description="Fields of a row that its checker gets as task_data: of code, where the tests lie.",
    )
    task: str = Field(
        "math",
        description="Checker for rows without a `task` field: math, choice, code, reasoning_gym, exact or a plug-in.",
    )
    template: str = Field("{prompt}", description="Text put before the model; {prompt} is replaced.")
    family: str | None = Field(None, description="reasoning_gym family (source: reasoning_gym).")
    family_options: dict[str, Any] = Field(
        default_factory=dict, description="Options of that family, as reasoning_gym names them."
    )
    family_rows: int = Field(1000, ge=1, description="Problems to generate (source: reasoning_gym).")
    max_prompt_tokens: int = Field(512, ge=1, description="Longer prompts are refused at load, tokens.")

    @model_validator(mode="after")
    def _source_is_given(self) -> Self:
        if self.source == "file" and self.path is None:
            raise ValueError("data.source=file needs data.path, got data.path=null; give data.path")
        if self.source == "file" and self.family is not None:
            raise ValueError(f"data.source=file contradicts data.family={self.family}; remove one of them")
        if self.source == "reasoning_gym" and self.family is None:
            raise ValueError("data.source=reasoning_gym needs data.family, got data.family=null; give data.family")
        if self.source == "reasoning_gym" and self.path is not None:
            raise ValueError(f"data.source=reasoning_gym contradicts data.path={self.path}; remove one of them")
        if self.heldout_path is not None and self.heldout_rows:
            raise ValueError(
                f"data.heldout_path={self.heldout_path} contradicts data.heldout_rows={self.heldout_rows}; remove one"
            )
        if "{prompt}" not in self.template:
            raise ValueError(f"data.template must contain {{prompt}}, got data.template={self.template!r}")
        return self


PACS_ONLY = ("score", "beta", "log_ratio", "class_weight", "label_smoothing", "gradient", "reference")
BASELINES_ONLY = ("clip_low", "clip_high")
PPO_ONLY = (
    "discount",
    "trace_decay",
    "whiten_advantages",
    "value_clip",
    "value_coefficient",
    "value_learning_rate_factor",
)


class AlgorithmSection(Section):
    """What is optimised: PACS or a baseline. See [algorithm.md](algorithm.md) for the formulas."""

    name: Literal["pacs", "grpo", "dr_grpo", "rloo", "reinforce", "ppo"] = Field(
        "pacs", description="PACS, or the policy gradient to compare it with."
    )
    score: Literal["rloo", "grpo", "dr_grpo", "naive"] = Field(
        "rloo", description="PACS only. How a log_ratio becomes a score."
    )
    beta: float = Field(1.0, gt=0, description="PACS only. Factor on the log_ratio.")
    log_ratio: Literal["log_ratio", "mean_logprob"] = Field(
        "log_ratio", description="PACS only. mean_logprob: log π_θ per token, without a reference."
    )
    class_weight: Literal["balanced", "none", "positive_only", "negative_only"] = Field(
        "balanced", description="PACS only. Weights of the two labels inside a group."
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="PACS only. ε: the classifier's targets are R·(1 − ε) + ε/2."
    )
    gradient: Literal["pathwise", "full"] = Field(
        "pathwise", description="PACS only. full adds the score-function term."
    )
    reference: Literal["batch", "interval", "drift", "stall", "manual"] = Field(
        "batch",
        description="PACS only. π_ref. batch: the policy at the start of each batch. Else a snapshot that a reset "
        "replaces, see [reset](#reset): every N batches, when the policy has drifted, when held-out accuracy stalls, "
        "or on request only.",
    )
    clip_low: float = Field(
        0.2, ge=0, description="Baselines only. π_θ/π_old is clipped below 1 − clip_low; 0: not at all."
    )
    clip_high: float = Field(
        0.2, ge=0, description="Baselines only. π_θ/π_old is clipped above 1 + clip_high; 0: not at all."
    )
    discount: float = Field(1.0, ge=0, le=1, description="PPO only. γ of the advantages.")
    trace_decay: float = Field(
        0.95, ge=0, le=1, description="PPO only. λ of the advantages; 1: the label alone, however long the response."
    )
    whiten_advantages: bool = Field(
        True, description="PPO only. Advantages of a batch's tokens get mean 0 and variance 1."
    )
    value_clip: float = Field(
        0.2, ge=0, description="PPO only. A value that moved further in one batch is not pulled on; 0: it is."
    )
    value_coefficient: float = Field(
        0.1, gt=0, description="PPO only. Weight of the value function's loss beside the policy's."
    )
    value_learning_rate_factor: float = Field(
        10.0, gt=0, description="PPO only. Learning rate of the value head, in multiples of learner.learning_rate."
    )
    uniform_groups: Literal["keep", "drop"] = Field(
        "keep",
        description="Groups whose judged completions have one label: in the loss and its counts, or out of both.",
    )
    truncated: Literal["as_labelled", "wrong", "dropped"] = Field(
        "as_labelled", description="Completions cut at the length limit; dropped: out of the loss and its counts."
    )
    importance_cap: float = Field(
        0.0,
        ge=0,
        description="Coefficients are multiplied by min(π_old/π_engine, this), of each response for pacs and rloo, "
        "else of each token; 0: off, otherwise at least 1.",
    )

    @property
    def peers_needed(self) -> str:
        """The setting because of which a completion needs others in its group; empty if none does."""
        if self.name == "pacs":
            return "" if self.score == "naive" else f"algorithm.score={self.score}"
        return "" if self.name in ("reinforce", "ppo") else f"algorithm.name={self.name}"

    @model_validator(mode="after")
    def _settings_belong_to_the_name(self) -> Self:
        owners = {
            **dict.fromkeys(() if self.name == "pacs" else PACS_ONLY, "pacs"),
            **dict.fromkeys(BASELINES_ONLY if self.name == "pacs" else (), "a baseline's name"),
            **dict.fromkeys(() if self.name == "ppo" else PPO_ONLY, "ppo"),
        }
        for key, right in owners.items():
            value, default = getattr(self, key), type(self).model_fields[key].default
            if value != default:
                raise ValueError(
                    f"algorithm.{key}={value} has no effect with algorithm.name={self.name}; "
                    f"leave it at {default} or set algorithm.name to {right}"
                )
        return self

    @model_validator(mode="after")
    def _values_make_sense(self) -> Self:
        if self.score == "grpo" and self.log_ratio == "log_ratio" and self.reference == "batch":
            raise ValueError(
                "algorithm.score=grpo contradicts algorithm.reference=batch: each batch begins with all log_ratios 0, "
                "where dividing by std + 1e-6 makes the gradient a million times too large; "
                "set algorithm.score=dr_grpo, algorithm.log_ratio=mean_logprob or a reference that is kept"
            )
        if self.reference != "batch" and self.log_ratio == "mean_logprob":
            raise ValueError(
                f"algorithm.reference={self.reference} has no effect with algorithm.log_ratio=mean_logprob, which has "
                "no reference; leave it at batch or set algorithm.log_ratio=log_ratio"
            )
        if 0 < self.importance_cap < 1:
            raise ValueError(
                "algorithm.importance_cap must be 0 (off) or at least 1, "
                f"got algorithm.importance_cap={self.importance_cap}; below 1 it would scale down on-policy samples"
            )
        return self


class ResetSection(Section):
    """Resets: π_ref := π_θ and a fresh optimizer, where `algorithm.reference` keeps a snapshot."""

    every_steps: int = Field(0, ge=0, description="reference: interval. Batches between resets.")
    drift: float = Field(
        0.02, gt=0, description="reference: drift. Reset when mean |log π_θ − log π_ref| passes this, nats per token."
    )
    saturated_share: float = Field(
        0.25, gt=0, le=1, description="reference: drift. Reset when so many scores have σ'(ψ) below 1e-3."
    )
    stall_evaluations: int = Field(
        3, ge=1, description="reference: stall. Reset after so many evaluations without a better held-out accuracy."
    )
    optimizer: bool = Field(True, description="Make the optimizer as freshly built, at each reset.")
    warm_up: bool = Field(True, description="With it: the learning rate rises anew over learner.warmup_steps.")
    offload: bool = Field(
        False, description="Where weights are on a GPU: keep the reference in the CPU's memory. Else without effect."
    )


class RolloutSection(Section):
    """Sampling."""

    group_size: int = Field(8, ge=1, description="Completions of one prompt, G.")
    temperature: float = Field(1.0, gt=0, description="Of sampling; the learner applies the same to its logits.")
    max_response_tokens: int = Field(256, ge=1, description="Longest response, tokens.")
    max_sequences: int = Field(128, ge=1, description="Completions the engine samples at once.")
    kv_cache_gib: float = Field(1.0, gt=0, description="Memory for the engine's KV cache on CPU, GiB.")
    claim_seconds: float = Field(120.0, gt=0, description="A prompt held longer may be taken over by another replica.")
    max_deliveries: int = Field(3, ge=1, description="Tries before a prompt goes to the dead-letter stream.")
    http_port: int = Field(8410, ge=1, le=65535, description="OpenAI-compatible completions, for people.")
    metrics_port: int = Field(8411, ge=1, le=65535, description="Of /metrics, /healthz and /readyz.")
    start_seconds: float = Field(600.0, gt=0, description="Deadline for the engine to load and be ready.")


class SandboxSection(Section):
    """Running programs that a model wrote; see `docs/sandbox.md`."""

    isolation: Literal["auto", "strong", "landlock", "weak"] = Field(
        "auto", description="How programs are walled in; auto: the better of strong and landlock, never weak."
    )
    slots: int = Field(0, ge=0, le=256, description="Programs run at once; 0: one a CPU core.")
    cpu_seconds: float = Field(
        4.0, ge=1, le=3600, description="CPU time of one run, seconds: one input, or all calls or asserts of a row."
    )
    wall_seconds: float = Field(0.0, ge=0, description="Time on the clock of one run, seconds; 0: 3 × cpu_seconds + 2.")
    memory_bytes: int = Field(
        2**30, ge=2**27, description="Address space of one run, bytes, the interpreter's included."
    )
    output_bytes: int = Field(
        2**21, ge=2**16, le=2**26, description="Longest stdout, stderr and returned value of one run, bytes each."
    )
    threads: int = Field(8, ge=0, le=48, description="Threads a run may start. Processes it may start: none.")
    packages: list[Path] = Field(
        default_factory=list, description="Folders of packages that programs may import beside the standard library."
    )
    first_user: int = Field(
        64000, ge=1000, le=2**31, description="As root, runs get user ids from here on: two a slot, 1000 for probes."
    )


class MathSection(Section):
    """What counts as the same mathematical answer where readers differ, and who reads it."""

    extract: Literal["strict", "reference"] = Field(
        "strict",
        description="strict: the last box. reference: math-verify reads the whole text and compares, as published.",
    )
    shadow: bool = Field(False, description="Also ask the reference, count and log where it disagrees; slow.")
    percent: Literal["either", "value"] = Field(
        "either", description="value: 50 % is 1/2 only. either: also 50, as the sign is often left away."
    )
    degrees: Literal["either", "number"] = Field(
        "either",
        description="number: 30° is 30. either: also π/6, where an answer with π meets one with a degree sign.",
    )
    units: Literal["convert", "match", "ignore"] = Field(
        "convert",
        description="Where both carry a known unit. match: it must be the same; convert: 0.35 m is 35 cm too.",
    )
    log: Literal["natural", "ten"] = Field("natural", description="Base of a log that is written without one.")
    inequality_for_interval: bool = Field(True, description="0 < x < 2 answers the interval (0, 2).")
    list_for_tuple: bool = Field(False, description="1, 2 answers the pair (1, 2).")
    vector_for_tuple: bool = Field(True, description="A row or column vector answers a tuple, and the reverse.")
    words_for_empty_set: bool = Field(True, description='"no solution" answers the empty set, and the reverse.')
    rename_constants: bool = Field(False, description="A + B/x answers C + D/x: constants may have other names.")
    rounded_gold_decimals: int = Field(
        3, ge=0, description="From so many decimals a gold may be rounded: 0.333 is met by 1/3. 0: never."
    )
    approximation_digits: int = Field(
        0, ge=0, description="From so many digits a decimal answers an exact gold that it rounds. 0: never."
    )


class VerifierSection(Section):
    """Grading."""

    workers: int = Field(1, ge=1, description="Processes for checks that need sympy or third-party scorers.")
    concurrent_groups: int = Field(8, ge=1, description="Groups judged at once.")
    check_cpu_seconds: float = Field(2.0, gt=0, description="CPU time of one check before its process is killed.")
    claim_seconds: float = Field(120.0, gt=0, description="A group held longer may be taken over by another replica.")
    max_deliveries: int = Field(3, ge=1, description="Tries before a group goes to the dead-letter stream.")
    math: MathSection = MathSection()
    cache_entries: int = Field(
        16384, ge=0, description="Settled verdicts kept, to be given again for the same completion; 0: none."
    )
    max_invalid_share: float = Field(
        0.2, gt=0, le=1, description="Share of verdicts that may be time-outs or errors before the run is paused."
    )
    invalid_window: int = Field(256, ge=1, description="Last verdicts of which that share is taken.")
    grpc_port: int = Field(8420, ge=1, le=65535, description="Of the Check call.")
    http_port: int = Field(8422, ge=1, le=65535, description="Of POST /v1/check, the same call for other systems.")
    metrics_port: int = Field(8421, ge=1, le=65535, description="Of /metrics, /healthz and /readyz.")
    sandbox: SandboxSection = SandboxSection()


class LearnerSection(Section):
    """Optimisation."""

    learning_rate: float = Field(1e-6, gt=0, description="AdamW's, constant after warm-up.")
    warmup_steps: int = Field(0, ge=0, description="Optimizer steps over which the learning rate rises linearly.")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's.")
    adam_betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW's.")
    max_grad_norm: float = Field(1.0, ge=0, description="Global norm to clip at; 0: no clipping.")
    minibatch_groups: int = Field(0, ge=0, description="Groups an optimizer step sees; 0: the whole batch in one step.")
    microbatch_tokens: int = Field(
        16384, ge=16, description="Padded tokens in one forward pass; a longer sequence gets one of its own."
    )
    logit_chunk_tokens: int = Field(1024, ge=1, description="Tokens whose logits exist at the same time.")
    logprob_kernel: Literal["auto", "torch", "liger"] = Field(
        "auto",
        description="What computes log-probs. torch: anywhere. liger: liger-kernel's fused kernel, on a GPU. auto: "
        "liger where it is installed and agrees with torch. See [design 0013](design/0013-fused-kernel.md).",
    )
    gradient_checkpointing: bool = Field(
        False, description="Recompute activations in backward: less memory, more time."
    )
    checkpoint_every_steps: int = Field(5, ge=1, description="Batches between checkpoints.")
    keep_checkpoints: int = Field(2, ge=1, description="Complete checkpoints kept.")
    max_nonfinite_steps: int = Field(3, ge=1, description="Skipped steps in a row before the run stops.")
    batch_wait_seconds: float = Field(900.0, gt=0, description="Longest wait for a batch before the run stops.")
    ranks: int = Field(
        1,
        ge=1,
        description="Processes that train together, one a GPU; on one machine the first starts the others, under a "
        "launcher such as torchrun they are what it starts.",
    )
    zero_stage: int = Field(
        0,
        ge=0,
        le=3,
        description="DeepSpeed ZeRO: what is divided over the ranks. 0: nothing (bfloat16: as 1), 1: optimizer state, "
        "2: also gradients, 3: also weights.",
    )
    threads: int = Field(1, ge=1, description="CPU threads of each rank's arithmetic.")
    metrics_port: int = Field(8431, ge=1, le=65535, description="Of /metrics, /healthz and /readyz.")


class PublicationSection(Section):
    """Making weights live."""

    bucket_bytes: int = Field(64 * 2**20, ge=2**16, description="Weights sent in one broadcast, bytes.")
    phase_seconds: float = Field(120.0, gt=0, description="Deadline of each phase.")
    attempts: int = Field(3, ge=1, description="Tries, each over a fresh communicator, before the learner gives up.")
    max_logprob_gap: float = Field(
        0.0, ge=0, description="Largest |log-prob difference| on the probe, nats; 0: 1e-4 in float32, 0.5 in bfloat16."
    )
    probe_tokens: int = Field(64, ge=2, description="Length of the probe.")


class EvaluationSection(Section):
    """Held-out accuracy, measured on one policy version."""

    every_steps: int = Field(
        0, ge=0, description="Batches between evaluations; 0: only before the first and after the last."
    )
    max_problems: int = Field(300, ge=1, description="Held-out problems used.")
    temperature: float = Field(1.0, ge=0, description="0: greedy.")
    samples: int = Field(1, ge=1, description="Completions a problem; accuracy is their mean.")
    shown_samples: int = Field(8, ge=0, description="Problems whose completions are kept for people.")
    wait_seconds: float = Field(600.0, gt=0, description="Deadline of one evaluation.")


class ControlSection(Section):
    """The control API."""

    http_port: int = Field(8400, ge=1, le=65535, description="Of the HTTP API.")
    grpc_port: int = Field(8401, ge=1, le=65535, description="Of the gRPC API.")
    heartbeat_seconds: float = Field(2.0, gt=0, description="Between heartbeats.")
    lost_after_seconds: float = Field(30.0, gt=0, description="Without a heartbeat an agent counts as lost.")
    gold_check_seconds: float = Field(600.0, gt=0, description="Deadline for checking that every gold verifies.")


class RedisSection(Section):
    """The embedded server, or one of your own."""

    url: str | None = Field(None, description="redis://… of a server of yours; null: `pacs run` starts one.")
    port: int = Field(8402, ge=1, le=65535, description="Of the embedded server.")


class RunConfig(Section):
    """A whole run."""

    run: RunSection
    model: ModelSection
    data: DataSection
    algorithm: AlgorithmSection = AlgorithmSection()
    reset: ResetSection = ResetSection()
    rollout: RolloutSection = RolloutSection()
    verifier: VerifierSection = VerifierSection()
    learner: LearnerSection = LearnerSection()
    publication: PublicationSection = PublicationSection()
    evaluation: EvaluationSection = EvaluationSection()
    control: ControlSection = ControlSection()
    redis: RedisSection = RedisSection()

    @property
    def capacity(self) -> int:
        """Groups that may be between admission and live weights."""
        return (self.run.max_staleness + 1) * self.run.groups_per_step

    @property
    def logprob_tolerance(self) -> float:
        """Largest log-prob difference a publication may show on the probe, nats."""
        # bfloat16: up to 0.27 on a 135 M model's random tokens; a stale head is off by whole nats.
        measured = {"float32": 1e-4, "bfloat16": 0.5}
        return self.publication.max_logprob_gap or measured[self.model.dtype]

    @property
    def ports(self) -> dict[str, int]:
        """Every port the run listens on, by its key in the file."""
        ports = {
            "control.http_port": self.control.http_port,
            "control.grpc_port": self.control.grpc_port,
            "rollout.http_port": self.rollout.http_port,
            "rollout.metrics_port": self.rollout.metrics_port,
            "verifier.grpc_port": self.verifier.grpc_port,
            "verifier.http_port": self.verifier.http_port,
            "verifier.metrics_port": self.verifier.metrics_port,
            "learner.metrics_port": self.learner.metrics_port,
        }
        return ports if self.redis.url else {**ports, "redis.port": self.redis.port}

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        size, reason = self.rollout.group_size, self.algorithm.peers_needed
        if self.algorithm.uniform_groups == "drop":  # alone in its group, every completion is uniform
            reason = reason or "algorithm.uniform_groups=drop"
        if size < 2 and reason:
            raise ValueError(
                f"rollout.group_size must be at least 2 for {reason}, got rollout.group_size={size}; "
                "raise it, or set algorithm.score=naive (of the baselines algorithm.name=reinforce or ppo) and "
                "algorithm.uniform_groups=keep"
            )
        longest = self.data.max_prompt_tokens + self.rollout.max_response_tokens
        if longest > self.model.max_tokens:
            raise ValueError(
                "data.max_prompt_tokens + rollout.max_response_tokens must fit into model.max_tokens, got "
                f"{self.data.max_prompt_tokens} + {self.rollout.max_response_tokens} > {self.model.max_tokens}; "
                "raise model.max_tokens or lower one of the others"
            )
        if self.rollout.max_sequences < size:
            raise ValueError(
                "rollout.max_sequences must hold a whole group, got "
                f"rollout.max_sequences={self.rollout.max_sequences} < rollout.group_size={size}; raise it"
            )
        if self.algorithm.score == "grpo" and self.algorithm.reference != "batch" and not self.learner.max_grad_norm:
            raise ValueError(
                "algorithm.score=grpo needs learner.max_grad_norm > 0, got learner.max_grad_norm=0: the first step "
                "after each reset, where all log_ratios are 0, has a gradient a million times too large; set it to 1"
            )
        if (self.algorithm.reference == "interval") != (self.reset.every_steps > 0):
            raise ValueError(
                "algorithm.reference=interval and reset.every_steps > 0 need each other, got "
                f"algorithm.reference={self.algorithm.reference}, reset.every_steps={self.reset.every_steps}; "
                "change one of them"
            )
        if self.algorithm.reference == "stall" and not self.evaluation.every_steps:
            raise ValueError(
                "algorithm.reference=stall needs evaluations, got evaluation.every_steps=0; set it to 5, for example"
            )
        minibatch, batch = self.learner.minibatch_groups, self.run.groups_per_step
        if minibatch and batch % minibatch:
            raise ValueError(
                "learner.minibatch_groups must divide run.groups_per_step, got "
                f"learner.minibatch_groups={minibatch}, run.groups_per_step={batch}; change one of them"
            )
        taken: dict[int, str] = {}
        for key, port in self.ports.items():
            if port in taken:
                raise ValueError(f"{key} and {taken[port]} must differ, both are {port}; change one of them")
            taken[port] = key
        return self
