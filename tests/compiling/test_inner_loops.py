"""The innermost loops of PTX text, and their accesses to shared memory."""

from cutesmith.compiling.inner_loops import inner_loops
from cutesmith.verdicts import InnerLoop

PTX = """\
.file 1 "/tmp/kernel.py"
.visible .entry other(
)
{
$L__BB0_1:
	ld.shared.b32 	%r1, [%r2];
	@%p1 bra 	$L__BB0_1;
	ret;
}
.visible .entry kernel(
)
{
	mov.u32 	%r1, 0;
$L__BB1_1:
	st.shared.b32 	[%r4], %r1;
$L__BB1_2:
	.loc 1 31 8
	ld.shared.v4.b32 	{%r5, %r6, %r7, %r8}, [%r9];
	.loc 1 33 8
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
	ld.shared.v4.b32 	{%r5, %r6, %r7, %r8}, [%r9+16];
	mbarrier.try_wait.shared.b64 	%p3, [%r1], %r2;
	add.s32 	%r1, %r1, 1;
	@%p1 bra 	$L__BB1_2;
	@%p2 bra 	$L__BB1_1;
$L__BB1_3:
	add.s32 	%r1, %r1, 1;
	@%p2 bra 	$L__BB1_3;
	ret;
}
"""


def test_an_innermost_loop_is_told_with_its_line_and_what_it_asks_of_shared_memory():
    """The loop around it, one without such accesses and one of another entry are left out; barriers do not count."""
    accesses = {"ld.shared.v4.b32": 2, "ldmatrix.sync.aligned.m8n8.x4.shared.b16": 1}
    assert inner_loops(PTX, "kernel") == (InnerLoop("kernel.py:31", 6, accesses),)
    assert inner_loops(PTX, "gone") == ()
