"""Arrays that waves have one after another: what an earlier one wrote is gone, and names do not share memory."""

import numpy as np
import pytest

from cutesmith.emulator.state.lent_arrays import LentArrays


@pytest.mark.parametrize("fill", [0, 0x5A])
@pytest.mark.parametrize("shape", [(3, 5), (2, 2), (40, 7)], ids=["same", "smaller", "larger"])
def test_an_array_is_filled_anew_for_each_user(shape, fill):
    lent = LentArrays()
    lent.take("frame", (3, 5), np.uint64)[:] = 7
    array = lent.take("frame", shape, np.uint64, fill)
    assert array.shape == shape and array.dtype == np.uint64
    assert (array.view(np.uint8) == fill).all()


def test_names_have_memory_of_their_own_and_the_same_name_has_it_again():
    lent = LentArrays()
    first, other = lent.take("writers", (4,), np.uint32), lent.take("readers", (4,), np.uint32)
    first[:] = 1
    assert not other.any()
    assert lent.take("writers", (2,), np.uint64).ctypes.data == first.ctypes.data


def test_what_is_too_large_to_keep_is_filled_too():
    array = LentArrays().take("shared", (129 << 20,), np.uint8, 3)
    assert array[0] == array[-1] == 3
