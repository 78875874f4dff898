"""`stft` and `istft` against PyTorch, on both devices, and programs that are made of transforms."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
rng = np.random.default_rng(1)


def pair(x: np.ndarray, device: str) -> tuple[Any, Any]:
    """The numbers as tensors of both libraries."""
    return torch.from_numpy(x), lucid.tensor(x.tolist(), dtype=getattr(lucid, str(x.dtype))).to(device)


def check(ours: Any, theirs: Any, what: object = "", tolerance: str = "near zero") -> None:
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1], what
    assert tuple(ours.shape) == tuple(theirs.shape), what
    wanted = theirs.detach().resolve_conj().numpy()
    got = np.asarray(ours.detach().cpu().tolist(), dtype=wanted.dtype).reshape(wanted.shape)
    np.testing.assert_allclose(
        got, wanted, **within(tolerance, max(1.0, np.abs(wanted).max())), err_msg=str(what)
    )


@pytest.mark.parametrize("device", DEVICES)
def test_stft(device: str) -> None:
    signals = [rng.standard_normal(60).astype("float32"), rng.standard_normal((3, 51)).astype("float32")]
    shapes = [(16, None, None), (16, 5, 16), (15, 4, 9), (8, 8, 3), (9, 1, None)]
    for signal, (n_fft, hop, width) in itertools.product(signals, shapes):
        window = rng.uniform(0.5, 1.5, width or n_fft).astype("float32")
        (t, x), (v, w) = pair(signal, device), pair(window, device)
        for center, normalized, onesided in itertools.product((True, False), (True, False), (True, False, None)):
            given = {"center": center, "normalized": normalized, "onesided": onesided, "return_complex": True}
            theirs = torch.stft(t, n_fft, hop, width, v, **given)
            ours = lucid.stft(x, n_fft, hop, width, w, **given)
            check(ours, theirs, (signal.shape, n_fft, hop, width, given))
            if device == "cpu":
                assert ours.stride() == theirs.stride()
        for mode in ("constant", "replicate", "circular"):
            check(
                x.stft(n_fft, hop, width, w, pad_mode=mode, return_complex=True),
                t.stft(n_fft, hop, width, v, pad_mode=mode, return_complex=True),
                mode,
            )
        aligned = {"center": False, "align_to_window": True, "return_complex": True}
        # With a window shorter than `n_fft` PyTorch's frames end behind the signal's storage: an error there.
        if width in (None, n_fft):
            check(lucid.stft(x, n_fft, hop, width, w, **aligned), torch.stft(t, n_fft, hop, width, v, **aligned))
        unaligned = {**aligned, "align_to_window": False}
        check(lucid.stft(x, n_fft, hop, width, w, **unaligned), torch.stft(t, n_fft, hop, width, v, **unaligned))
    z, zz = pair((rng.standard_normal((2, 40)) + 1j * rng.standard_normal((2, 40))).astype("complex64"), device)
    for v, w in (pair(np.hanning(8).astype("float32"), device), pair(np.hanning(8).astype("complex64"), device)):
        check(lucid.stft(zz, 8, window=w), torch.stft(z, 8, window=v))
        check(
            lucid.stft(zz.real, 8, window=w, return_complex=True), torch.stft(z.real, 8, window=v, return_complex=True)
        )


@pytest.mark.parametrize("device", DEVICES)
def test_istft(device: str) -> None:
    shapes = [(16, 4, 16), (16, 5, 16), (15, 4, 9), (9, 3, None), (40, 1, 40)]
    for (n_fft, hop, width), batch in itertools.product(shapes, ((), (2,))):
        v, w = pair(rng.uniform(0.5, 1.5, width or n_fft).astype("float32"), device)
        for onesided, normalized in itertools.product((True, False), (True, False)):
            bins = n_fft // 2 + 1 if onesided else n_fft
            spectra = rng.standard_normal((*batch, bins, 11)) + 1j * rng.standard_normal((*batch, bins, 11))
            t, x = pair(spectra.astype("complex64"), device)
            for given in ({}, {"length": 17}, {"center": width not in (None, n_fft)}):
                kept = {"normalized": normalized, "onesided": onesided, **given}
                theirs = torch.istft(t, n_fft, hop, width, v, **kept)
                check(lucid.istft(x, n_fft, hop, width, w, **kept), theirs, (n_fft, hop, width, kept))
        whole = {"onesided": False, "return_complex": True}
        theirs = t.istft(n_fft, hop, width, v, **whole)
        check(x.istft(n_fft, hop, width, w, **whole), theirs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {"length": 300, "onesided": False}
            if width in (None, n_fft):
                check(lucid.istft(x, n_fft, hop, width, **given), torch.istft(t, n_fft, hop, width, **given))
                continue
            # The last window's padding is part of what is asked for.
            for m, z in ((lucid, x), (torch, t)):
                with pytest.raises(RuntimeError, match="window overlap add min"):
                    m.istft(z, n_fft, hop, width, **given)


@pytest.mark.parametrize("device", DEVICES)
def test_there_and_back_with_gradients(device: str) -> None:
    signal, window = rng.standard_normal((2, 64)).astype("float32"), np.hanning(18)[1:17].astype("float32")
    found = []
    for m, x, w in zip((torch, lucid), pair(signal, device), pair(window, device), strict=True):
        x, w = x.requires_grad_(), w.requires_grad_()
        spectra = m.stft(x, 16, 4, window=w, return_complex=True)
        power = m.view_as_real(spectra).square().sum(-1)
        back = m.istft(spectra * (power + 1).log(), 16, 4, window=w, length=64)
        grads = m.autograd.grad(back.square().sum(), (x, w), create_graph=True)
        found.append([back, *grads, *m.autograd.grad(grads[0].square().sum(), (x, w))])
        same = m.istft(spectra, 16, 4, window=w, length=64)
        assert float((same - x).abs().max()) < 1e-5
    for theirs, ours in zip(*found, strict=True):
        check(ours, theirs, tolerance="second transforms")


def test_double_precision_and_vmap() -> None:
    t, x = pair(rng.standard_normal((3, 40)), "cpu")
    v, w = pair(np.hanning(10)[1:9], "cpu")
    theirs = torch.stft(t, 8, 2, window=v, return_complex=True)
    check(lucid.stft(x, 8, 2, window=w, return_complex=True), theirs, tolerance="float64 rounding")
    each = lucid.vmap(lambda s: lucid.stft(s, 8, 2, window=w, return_complex=True))(x)
    check(each, theirs, tolerance="float64 rounding")
    check(
        lucid.vmap(lambda s: lucid.istft(s, 8, 2, window=w))(each),
        torch.istft(theirs, 8, 2, window=v),
        tolerance="float64 rounding",
    )
    assert lucid.autograd.gradcheck(
        lambda x: lucid.view_as_real(lucid.stft(x, 8, 2, window=w, return_complex=True)), (x.requires_grad_(),)
    )


ERRORS: dict[str, Any] = {
    "no return_complex": lambda m, x, y: m.stft(x, 16, window=m.ones(16)),
    "onesided complex": lambda m, x, y: m.stft(x + 0j, 16, onesided=True),
    "too long": lambda m, x, y: m.stft(x, 100, center=False, return_complex=True),
    "hop 0": lambda m, x, y: m.stft(x, 16, 0, return_complex=True),
    "wide window": lambda m, x, y: m.stft(x, 16, win_length=17, return_complex=True),
    "window of another size": lambda m, x, y: m.stft(x, 16, window=m.ones(13), return_complex=True),
    "window of two dimensions": lambda m, x, y: m.stft(x, 16, window=m.ones(1, 16), return_complex=True),
    "integers": lambda m, x, y: m.stft(x.int(), 16, return_complex=True),
    "float16": lambda m, x, y: m.stft(x.half(), 16, window=m.ones(16, dtype=m.float16), return_complex=True),
    "three dimensions": lambda m, x, y: m.stft(x[None, None], 16, return_complex=True),
    "aligned and centered": lambda m, x, y: m.stft(x, 16, return_complex=True, align_to_window=True),
    "negative": lambda m, x, y: m.stft(x, -16, return_complex=True),
    "padding mode": lambda m, x, y: m.stft(x, 16, return_complex=True, pad_mode="foo"),
    "real spectra": lambda m, x, y: m.istft(y.real, 16),
    "wide hop": lambda m, x, y: m.istft(y, 16, 20),
    "other bins": lambda m, x, y: m.istft(y, 18),
    "not onesided": lambda m, x, y: m.istft(y, 16, onesided=False),
    "complex of half": lambda m, x, y: m.istft(y, 16, return_complex=True),
    "gaps": lambda m, x, y: m.istft(y, 16, window=m.zeros(16)),
    "complex window": lambda m, x, y: m.istft(y, 16, window=m.ones(16) + 0j),
    "no frames": lambda m, x, y: m.istft(y[:, :0], 16),
    "no length": lambda m, x, y: m.istft(y, 16, length=0),
    "negative length": lambda m, x, y: m.istft(y, 16, length=-3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_pytorchs_kind(name: str) -> None:
    caught = []
    for m in (torch, lucid):
        with pytest.raises(Exception) as error:
            ERRORS[name](m, m.ones(64), m.ones(9, 17, dtype=m.complex64))
        caught.append(error.value)
    kinds = (NotImplementedError, TypeError, RuntimeError)
    assert any(all(isinstance(e, kind) for e in caught) for kind in kinds), caught


def test_warnings() -> None:
    x = lucid.ones(64)
    with pytest.warns(UserWarning, match="window was not provided"):
        y = lucid.stft(x, 16, return_complex=True)
    with pytest.warns(UserWarning, match="return_complex=False is deprecated"):
        lucid.stft(x, 16, window=lucid.ones(16), return_complex=False)
    with pytest.warns(UserWarning, match="shorter than the length"):
        lucid.istft(y, 16, window=lucid.ones(16), length=100)


# ---- programs as people write them, with the framework as an argument ------------------------------------------------


def griffin_lim(m: Any, make: Any) -> list[Any]:
    """A spectrogram, and a signal of it, as torchaudio makes one, in some iterations from fixed phases."""
    n_fft, hop = 64, 16
    window = m.hann_window(n_fft, device=make(np.zeros(1)).device)
    time = np.arange(1024) / 1024
    signal = make(np.sin(2 * np.pi * 60 * time) + 0.5 * np.sin(2 * np.pi * 150 * time))
    power = m.stft(signal, n_fft, hop, window=window, center=True, return_complex=True).abs().pow(2.0)
    magnitude = power.sqrt()
    angles = m.polar(m.ones_like(magnitude), make(np.cos(np.arange(magnitude.numel())).reshape(tuple(magnitude.shape))))
    previous, momentum = m.zeros_like(angles), 0.5
    for _ in range(8):
        inverse = m.istft(magnitude * angles, n_fft, hop, n_fft, window, length=1024)
        rebuilt = m.stft(
            inverse,
            n_fft,
            hop,
            n_fft,
            window,
            center=True,
            pad_mode="reflect",
            normalized=False,
            onesided=True,
            return_complex=True,
        )
        angles = rebuilt - previous * (momentum / (1 + momentum))
        angles = angles / (angles.abs() + 1e-8)
        previous = rebuilt
    mel = (power.transpose(0, 1) @ make(np.linspace(0, 1, 33 * 8).reshape(33, 8))).clamp(min=1e-5).log10()
    return [power, mel, m.istft(magnitude * angles, n_fft, hop, n_fft, window, length=1024)]


def fourier_neural_operator(m: Any, make: Any) -> list[Any]:
    """A layer of a Fourier neural operator in two dimensions (Li and others, 2021), and some steps of its training."""
    modes, width = 4, 3

    class Spectral(m.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            scale = 1 / width**2
            real, imag = (make(np.sin(np.arange(2 * width * width * modes * modes) + i)) for i in (0, 1))
            shape = (2, width, width, modes, modes)
            self.weights = m.nn.Parameter(scale * m.complex(real.reshape(shape), imag.reshape(shape)))

        def forward(self, x: Any) -> Any:
            spectrum = m.fft.rfft2(x)
            out = m.zeros(x.shape[0], width, x.size(-2), x.size(-1) // 2 + 1, dtype=m.cfloat, device=x.device)
            low, high = self.weights
            out[:, :, :modes, :modes] = m.einsum("bixy,ioxy->boxy", spectrum[:, :, :modes, :modes], low)
            out[:, :, -modes:, :modes] = m.einsum("bixy,ioxy->boxy", spectrum[:, :, -modes:, :modes], high)
            return m.fft.irfft2(out, s=(x.size(-2), x.size(-1)))

    layer = Spectral()
    x = make(np.cos(np.arange(2 * width * 12 * 10) * 0.37).reshape(2, width, 12, 10))
    y = make(np.sin(np.arange(2 * width * 12 * 10) * 0.11).reshape(2, width, 12, 10))
    optimizer = m.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        loss = m.nn.functional.mse_loss(m.nn.functional.gelu(layer(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [m.stack(losses), layer.weights.detach(), layer.weights.grad]


def convolution(m: Any, make: Any) -> list[Any]:
    """A long convolution by transforms, as state-space models have it, against one of windows; with gradients."""
    signal, kernel = make(np.sin(np.arange(2 * 300) * 0.3).reshape(2, 300)), make(np.exp(-np.arange(40) / 9.0))
    signal.requires_grad_(), kernel.requires_grad_()
    n = signal.shape[-1] + kernel.shape[-1] - 1
    made = m.fft.irfft(m.fft.rfft(signal, n=n) * m.fft.rfft(kernel, n=n), n=n)[..., :300]
    wanted = m.nn.functional.conv1d(
        m.nn.functional.pad(signal, (39, 0)).unsqueeze(1), kernel.flip(0)[None, None]
    ).squeeze(1)
    assert float((made - wanted).abs().max()) < 1e-4
    image = make(np.cos(np.arange(24 * 24) * 1.7).reshape(24, 24))
    blurred = m.fft.ifftn(m.fft.fftn(image) * m.fft.fftn(m.ones(3, 3, device=image.device) / 9, s=(24, 24))).real
    centered = m.fft.fftshift(m.fft.fft2(image)).abs()
    return [made, *m.autograd.grad(made.square().mean(), (signal, kernel)), blurred, centered]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("program", [griffin_lim, fourier_neural_operator, convolution])
def test_programs(program: Any, device: str) -> None:
    theirs = program(torch, lambda a: torch.tensor(a.tolist()))
    ours = program(lucid, lambda a: lucid.tensor(a.tolist(), device=device))
    for a, b in zip(ours, theirs, strict=True):
        check(a, b, program.__name__, tolerance="programs of transforms")
