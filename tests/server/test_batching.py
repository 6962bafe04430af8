import asyncio
import threading

import numpy as np
import pytest
from asking import PATIENCE, GatedModel, assert_says, until_entered
from made_bundles import RAW, image_bundle, pixels, point_bundle, sequence_bundle

from openradial.classifier import OpenClassifier
from openradial.data.inputs import ImageInputs
from openradial.server import Batcher, Limits, RequestError, batching

BUNDLE = point_bundle()


X = np.random.default_rng(2).normal(size=(40, 2))


@pytest.fixture
def make_batcher():
    made = []

    def make(bundle=BUNDLE, **limits):
        made.append(Batcher(bundle, Limits(**limits)))
        return made[-1]

    yield make
    for batcher in made:
        batcher.close()


async def answer(batcher, x):
    return await batcher.submit([x.tolist()])


def test_a_request_that_is_alone_does_not_wait(make_batcher, monkeypatch):
    batcher, waited = make_batcher(delay=60_000.0), []
    real = batcher._changed.wait
    monkeypatch.setattr(batcher._changed, "wait", lambda timeout=None: (waited.append(timeout), real(timeout))[1])

    async def several():
        for point in X[:5]:
            await batcher.submit([point.tolist()])

    asyncio.run(several())
    batcher.close()
    assert set(waited) <= {None}  # with a timeout it would wait for others to come


def test_what_comes_while_the_model_computes_goes_together(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher()

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        others = [batcher.submit([x.tolist()]) for x in X[1:8]]
        assert batcher.queued == 7
        model.gate.set()
        return [await first, *await asyncio.gather(*others)]

    found = asyncio.run(several())
    assert model.rows == [1, 7]
    assert_says([rows[0] for rows in found], BUNDLE.predict(X[:8]))
    assert batcher.queued == 0


def test_a_batch_is_never_larger_than_its_limit_but_for_a_request_that_is(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher(batch=4)

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        others = [batcher.submit(X[at : at + n].tolist()) for at, n in ((1, 3), (4, 1), (5, 2), (7, 6), (13, 1))]
        model.gate.set()
        return await asyncio.gather(first, *others)

    found = asyncio.run(several())
    assert model.rows == [1, 4, 2, 6, 1]
    assert_says([row for rows in found for row in rows], BUNDLE.predict(X[:14]))


def test_under_load_a_batch_waits_for_as_many_as_came_before(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher(delay=60_000.0)
    is_waiting, real = threading.Event(), batcher._changed.wait

    def wait(timeout=None):
        if timeout is not None:
            is_waiting.set()
        return real(timeout)

    monkeypatch.setattr(batcher._changed, "wait", wait)

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        together = [batcher.submit([x.tolist()]) for x in X[1:4]]
        model.gate.set()
        await asyncio.gather(first, *together)
        begun = [batcher.submit([x.tolist()]) for x in X[4:6]]
        assert await asyncio.to_thread(is_waiting.wait, PATIENCE)  # two of three are there, and the third comes soon
        assert model.rows == [1, 3]
        await asyncio.gather(*begun, batcher.submit([X[6].tolist()]))

    asyncio.run(several())
    assert model.rows == [1, 3, 3]


def test_nobody_waits_longer_than_the_delay(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher(delay=20.0)

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        together = [batcher.submit([x.tolist()]) for x in X[1:4]]
        model.gate.set()
        await asyncio.gather(first, *together)
        await asyncio.wait_for(batcher.submit([X[4].tolist()]), PATIENCE)  # the others never come
        await asyncio.wait_for(batcher.submit([X[5].tolist()]), PATIENCE)

    asyncio.run(several())
    assert model.rows == [1, 3, 1, 1]


def test_a_request_that_nobody_waits_for_is_not_computed(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher()

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        others = [batcher.submit([x.tolist()]) for x in X[1:5]]
        others[1].cancel()
        model.gate.set()
        await first
        return await asyncio.gather(others[0], *others[2:])

    found = asyncio.run(several())
    assert model.rows == [1, 3]
    assert_says([rows[0] for rows in found], BUNDLE.predict(X[[1, 3, 4]]))


def test_a_request_that_is_cancelled_while_it_is_computed_leaves_the_others_alone(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher()

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        first.cancel()
        second = batcher.submit([X[1].tolist()])
        model.gate.set()
        return await second

    assert_says(asyncio.run(several()), BUNDLE.predict(X[1:2]))


def test_a_failure_hits_the_request_that_causes_it_alone(make_batcher, monkeypatch):
    batcher, real = make_batcher(), OpenClassifier.predict
    model = GatedModel(monkeypatch, is_open=False)
    gated = OpenClassifier.predict

    def failing(bundle, raw, rate=None):
        if (raw == 7.0).any():
            raise RuntimeError("seven")
        return gated(bundle, raw, rate)

    monkeypatch.setattr(OpenClassifier, "predict", failing)

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        others = [batcher.submit([x]) for x in ([1.0, 2.0], [7.0, 7.0], [2.0, 1.0])]
        model.gate.set()
        await first
        return await asyncio.gather(*others, return_exceptions=True)

    before, failed, after = asyncio.run(several())
    assert isinstance(failed, RuntimeError)
    assert_says([*before, *after], real(BUNDLE, [[1.0, 2.0], [2.0, 1.0]]))


def test_sequences_of_different_lengths_do_not_lengthen_each_other(make_batcher, monkeypatch):
    bundle = sequence_bundle()
    raw, shapes, real = RAW[sequence_bundle](), [], OpenClassifier.predict

    def noted(bundle, x, rate=None):
        shapes.append(tuple(x.shape))
        return real(bundle, x, rate)

    expected = bundle.predict(raw)
    monkeypatch.setattr(OpenClassifier, "predict", noted)

    async def one():
        return await make_batcher(bundle).submit([sequence.tolist() for sequence in raw])

    assert_says(asyncio.run(one()), expected)
    assert sorted({shape[1] for shape in shapes}) == sorted({len(sequence) for sequence in raw})


def test_a_full_queue_is_503_and_says_when_to_come_again(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher(queue=5, items=5)

    async def several():
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        second = batcher.submit(X[1:4].tolist())
        with pytest.raises(RequestError) as refused:
            batcher.submit(X[4:7].tolist())
        model.gate.set()
        await asyncio.gather(first, second)
        return refused.value

    error = asyncio.run(several())
    assert (error.status, error.headers) == (503, {"Retry-After": "1"})
    assert str(error) == "the queue is full: 3 inputs wait, the limit is 5; retry later"


def test_closing_finishes_what_was_taken_and_takes_nothing_more(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher(batch=2)

    async def several():
        taken = [batcher.submit([x.tolist()]) for x in X[:5]]
        await until_entered(model)
        closing = asyncio.ensure_future(asyncio.to_thread(batcher.close))
        while batcher.is_open:
            await asyncio.sleep(0)
        with pytest.raises(RequestError, match=r"^the service is stopping; retry later$"):
            batcher.submit([X[0].tolist()])
        model.gate.set()
        found = await asyncio.gather(*taken)
        await closing
        return found

    assert_says([rows[0] for rows in asyncio.run(several())], BUNDLE.predict(X[:5]))


def test_calls_of_several_event_loops_find_their_way(make_batcher):
    batcher = make_batcher()

    def one(x):
        return asyncio.run(answer(batcher, x))[0]

    found = [None] * 8
    threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, one(X[i]))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_says(found, BUNDLE.predict(X[:8]))


def test_a_loop_that_is_gone_does_not_stop_the_model(make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher()

    async def leave():
        batcher.submit([X[0].tolist()])
        await until_entered(model)

    asyncio.run(leave())
    model.gate.set()
    assert_says(asyncio.run(answer(batcher, X[1])), BUNDLE.predict(X[1:2]))


SMALL, LARGE = pixels(1)[0, 0].tolist(), pixels(1, seed=7)[0, 0].tolist()


class GatedDecoder:
    """Decoding of the images given waits at a gate; counts how many are decoded."""

    def __init__(self, monkeypatch, slow):
        self.gate, self.entered, self.count = threading.Event(), threading.Semaphore(0), 0
        real = ImageInputs.prepare

        def prepare(inputs, raw):
            self.count += 1
            if raw[0].tolist() == slow:
                self.entered.release()
                assert self.gate.wait(PATIENCE)
            return real(inputs, raw)

        monkeypatch.setattr(ImageInputs, "prepare", prepare)

    async def until_entered(self):
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


def test_others_are_answered_while_a_request_is_decoded(make_batcher, monkeypatch):
    bundle = image_bundle()
    expected = bundle.predict([np.array(SMALL, np.uint8), np.array(LARGE, np.uint8)])
    decoder, batcher = GatedDecoder(monkeypatch, LARGE), make_batcher(bundle)

    async def several():
        slow = batcher.submit([LARGE])
        await decoder.until_entered()
        quick = await asyncio.wait_for(batcher.submit([SMALL]), PATIENCE)
        assert not slow.done()
        assert batcher.queued == 1
        decoder.gate.set()
        return quick + await slow

    assert_says(asyncio.run(several()), expected)
    assert batcher.queued == 0


def test_images_are_decoded_by_few_threads(make_batcher, monkeypatch):
    decoder, batcher = GatedDecoder(monkeypatch, LARGE), make_batcher(image_bundle())

    async def several():
        futures = [batcher.submit([LARGE]) for _ in range(3 * batching.DECODERS)]
        for _ in range(batching.DECODERS):
            await decoder.until_entered()
        assert decoder.count == batching.DECODERS
        decoder.gate.set()
        await asyncio.gather(*futures)

    asyncio.run(several())
    assert decoder.count == 3 * batching.DECODERS


def test_a_request_that_nobody_waits_for_is_not_decoded_to_its_end(make_batcher, monkeypatch):
    decoder, batcher = GatedDecoder(monkeypatch, LARGE), make_batcher(image_bundle())

    async def several():
        abandoned = batcher.submit([LARGE, *[SMALL] * 9])
        await decoder.until_entered()
        abandoned.cancel()
        decoder.gate.set()
        return await batcher.submit([SMALL])

    assert len(asyncio.run(several())) == 1
    batcher.close()
    assert decoder.count == 2
    assert batcher.queued == 0


def test_closing_finishes_what_is_being_decoded(make_batcher, monkeypatch):
    decoder, batcher = GatedDecoder(monkeypatch, LARGE), make_batcher(image_bundle())

    async def several():
        slow = batcher.submit([LARGE])
        await decoder.until_entered()
        closing = asyncio.ensure_future(asyncio.to_thread(batcher.close))
        while batcher.is_open:
            await asyncio.sleep(0)
        decoder.gate.set()
        await closing
        return await slow

    assert len(asyncio.run(several())) == 1


def test_an_unexpected_error_of_a_decoder_hits_its_request_alone(make_batcher, monkeypatch):
    batcher = make_batcher(image_bundle())

    async def several():
        with monkeypatch.context() as broken:
            broken.setattr(ImageInputs, "prepare", lambda inputs, raw: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await batcher.submit([SMALL])
        return await batcher.submit([SMALL])

    assert len(asyncio.run(several())) == 1
    assert not batcher.is_stalled


@pytest.mark.parametrize(("patience", "stalled"), [(1e-9, True), (1e9, False)])
def test_a_batcher_is_stalled_while_requests_wait_and_none_is_answered(patience, stalled, make_batcher, monkeypatch):
    model, batcher = GatedModel(monkeypatch, is_open=False), make_batcher(stall_timeout=patience)

    async def several():
        assert not batcher.is_stalled
        first = batcher.submit([X[0].tolist()])
        await until_entered(model)
        second = batcher.submit([X[1].tolist()])
        third = batcher.submit([X[2].tolist()])
        third.cancel()
        assert batcher.is_stalled is stalled
        model.gate.set()
        await asyncio.gather(first, second)

    asyncio.run(several())
    batcher.close()
    assert not batcher.is_stalled
