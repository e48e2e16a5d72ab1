"""The emulated GPU: PTX that the DSL compiled, executed on the CPU and checked. `docs/emulator.md` says why it is so.

The path of one kernel, top to bottom:

    device.py                      a recorded launch arrives (recording/), with the addresses of its tensors
    ptx/parser.py                  PTX text to a module: functions, instructions, `.loc` lines
    instruction_set.py, program/   the entry function to basic blocks and suspension points, registers to frame rows
    native/                        basic blocks to machine code (LLVM); emitters/ write the code of one instruction
    machine/launch.py              limits, then waves of whole clusters; state/ holds a wave as arrays
    machine/scheduler.py           rounds: lanes run natively until suspended, then complete suspension points execute
    machine/suspensions.py         kinds of suspension; operations/ and machine/*barriers.py execute the instructions
    sanitizer/access.py            every access to memory, from native code and handlers: address, bounds, races
    sanitizer/explanations.py      fault records to findings, machine/deadlock.py for lanes that wait for ever
    faults.py                      a Finding: kind, sentence, Python line, thread; LaunchReport carries all of them

profiling/ and tracer.py observe a launch. positions/ runs some blocks of a large launch for their addresses only.

To add an instruction: a function under `@native("opcode")` in emitters/ when one lane executes it alone, else a handler
under `@lane_operation` or `@warp_operation` in operations/. Both enter it in instructions/table.py, by the longest
dotted prefix of the opcode; instruction_set.py lists the modules. A new kind of suspension (a warpgroup) is a subclass
of `Suspension`; an engine that works while lanes run (TMA) is a `Unit` with a `step`, both in machine/.

What has which number, everywhere: an instruction its place in `Program.instructions` (the *site* of an access), a
suspension point its place in `Program.suspension_points` (a lane's status), a register its row in `Program.slots`, a
special register its row in `SPECIAL_ROWS`; a barrier of a block has its own 16 ids. Context words: program/abi.py.
"""
