"""`Fitting`: how every demo model is trained, and goes on after it was stopped.

Knows the optimizer, its schedule, checkpoints and the log of epochs. Must not know models nor rows.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import tensorflow as tf
import tf_keras


class WarmupCosine(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then a cosine from the peak down to a part of it."""

    def __init__(self, peak: float, steps: int, warmup_steps: int, floor: float):
        self.peak, self.steps, self.warmup_steps, self.floor = peak, steps, warmup_steps, floor

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        progress = tf.minimum(1.0, step / self.steps)
        cosine = self.floor + (1.0 - self.floor) * 0.5 * (1.0 + tf.cos(math.pi * progress))
        return self.peak * tf.minimum((step + 1.0) / self.warmup_steps, cosine)

    def get_config(self) -> dict[str, float]:
        return dict(vars(self))


class Fitting:
    """A training that goes on from its last epoch when it is started again."""

    def __init__(
        self,
        trained: tf_keras.Model,
        kept: tf_keras.Model,
        schedule: WarmupCosine,
        checkpoints: Path,
        log: Path,
        is_told_by_keras: bool = False,
    ) -> None:
        """Compiles the model, and restores the last checkpoint if there is one.

        Args:
            trained: the model with its losses.
            kept: the part of it that checkpoints hold.
            schedule: of the learning rate.
            checkpoints: their folder.
            log: the file that gets the values, seconds and rows of each epoch, as JSON.
            is_told_by_keras: whether Keras prints the values of an epoch.
        """
        self._trained, self._log, self._is_told_by_keras = trained, log, is_told_by_keras
        self._optimizer = tf_keras.optimizers.AdamW(
            schedule, weight_decay=0.01, beta_2=0.98, global_clipnorm=1.0
        )
        trained.compile(self._optimizer, jit_compile=True)
        self._optimizer.build(kept.trainable_variables)
        log.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = tf.train.Checkpoint(model=kept, optimizer=self._optimizer)
        self._manager = tf.train.CheckpointManager(checkpoint, checkpoints, max_to_keep=1)
        if self._manager.restore_or_initialize():
            print(f"going on after step {self.steps}", flush=True)

    @property
    def steps(self) -> int:
        """How many were made, in all sittings."""
        return int(self._optimizer.iterations)

    def fit(
        self, rows: tf_keras.utils.Sequence, first: int, last: int, unit: str, each: int
    ) -> None:
        """Trains the epochs from `first` on and before `last`.

        Args:
            rows: batches.
            first, last: numbers of epochs, from 0.
            unit: what is counted: "tokens".
            each: how many of it an epoch has.
        """
        quiet = 2 if self._is_told_by_keras else 0
        self._trained.fit(
            rows,
            initial_epoch=first,
            epochs=last,
            shuffle=False,
            verbose=1 if sys.stdout.isatty() else quiet,
            callbacks=[_Progress(self, unit, each)],
        )

    def end_epoch(self, epoch: int, values: dict[str, float], seconds: float, **rows: int) -> None:
        """Writes a checkpoint and a line of the log, and says how fast it was."""
        history = json.loads(self._log.read_text()) if self._log.exists() else []
        history.append({**values, "seconds": round(seconds, 1), **rows})
        self._log.write_text(json.dumps(history))
        self._manager.save()
        [(unit, each)] = rows.items()
        said = "" if self._is_told_by_keras else f" {values}"
        print(f"epoch {epoch + 1}: {each / seconds:,.0f} {unit}/s{said}", flush=True)


class _Progress(tf_keras.callbacks.Callback):
    def __init__(self, fitting: Fitting, unit: str, each: int) -> None:
        super().__init__()
        self.fitting, self.rows = fitting, {unit: each}

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        values = {name: round(float(value), 4) for name, value in logs.items()}
        self.fitting.end_epoch(epoch, values, time.perf_counter() - self.started, **self.rows)
