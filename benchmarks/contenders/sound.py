"""The recording for all speech contenders.

Knows only numpy. The models have random weights, so any sound will do if all get the same.
"""

from __future__ import annotations

import functools

import numpy as np

RATE = 16_000
"""Samples per second."""

LANGUAGE = "en"


@functools.cache
def samples() -> np.ndarray:
    """Thirty seconds, a whole window: float32 of shape (480000,), a rising tone with noise."""
    seconds = np.arange(30 * RATE) / RATE
    noise = np.random.default_rng(0).standard_normal(len(seconds))
    return (0.3 * np.sin(2 * np.pi * (200 + 20 * seconds) * seconds) + 0.05 * noise).astype(
        np.float32
    )


def features(folder: str) -> np.ndarray:
    """Its features by the checkpoint's own extractor: float32 (1, mel bins, frames)."""
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    return extractor(samples(), sampling_rate=RATE, return_tensors="np").input_features
