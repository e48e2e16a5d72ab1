"""CUTLASS's scripts for Blackwell: name, architecture, script with arguments, and why one does not pass."""

from __future__ import annotations

_KERNEL, _TUTORIAL = "cute/blackwell/kernel", "cute/blackwell/tutorial"
_GEMM, _DENSE, _SCALED = f"{_TUTORIAL}/tutorial_gemm", f"{_KERNEL}/dense_gemm", f"{_KERNEL}/blockscaled_gemm"
_ULTRA = "sm103_dense_blockscaled_gemm_persistent.py --mnkl 256,256,768,1 --mma_tiler_mn 256,256 --cluster_shape_mn 2,1"
_GEFORCE = "cute/blackwell_geforce/kernel/blockscaled_gemm"
_PRIMITIVES = "experimental/primitives"
_F16 = "--ab_dtype Float16 --c_dtype Float16"
_MXF8 = "--a_dtype Float8E4M3FN --b_dtype Float8E4M3FN --sf_dtype Float8E8M0FNU --sf_vec_size 32"
_PAIR = "--mma_tiler_mn 256,128 --cluster_shape_mn 2,1 --use_2cta_instrs"
_SMALL, _STORE = "--mnkl 256,256,128,1", "--use_tma_store"

ROWS = (
    *(
        (f"fp16_gemm_{name}", "sm_100a", f"{_GEMM}/fp16_gemm_{name}.py --mnk {sizes}", why)
        for name, sizes, why in (
            ("0", "256,256,128", ""),
            ("1", "256,256,128", ""),
            ("2", "256,256,128", ""),
            ("3", "256,256,128", ""),
            ("3_1", "512,512,128", ""),
            ("4", "512,512,128", ""),
            ("5", "512,512,128", ""),
            ("6", "512,512,128", ""),
        )
    ),
    ("nvfp4_gemm_0", "sm_100a", f"{_GEMM}/nvfp4_gemm_0.py --mnkl 128,256,256,1", ""),
    ("nvfp4_gemm_1", "sm_100a", f"{_GEMM}/nvfp4_gemm_1.py --mnkl 256,256,256,1", ""),
    (
        "tma_v0",
        "sm_100a",
        f"{_TUTORIAL}/tutorial_tma/tma_v0.py",
        "a finding: its block ends before its TMA store has read",
    ),
    (
        "tma_v1",
        "sm_100a",
        f"{_TUTORIAL}/tutorial_tma/tma_v1.py",
        "a finding: its block ends before its TMA store has read",
    ),
    ("tma_v2", "sm_100a", f"{_TUTORIAL}/tutorial_tma/tma_v2.py", ""),
    (
        "dense_gemm int8",
        "sm_100a",
        f"{_DENSE}/dense_gemm.py --mnkl 128,128,128,1 --ab_dtype Int8 --c_dtype Int32 --acc_dtype Int32",
        "",
    ),
    (
        "dense_gemm tf32",
        "sm_100a",
        f"{_DENSE}/dense_gemm.py --mnkl 128,128,128,1",
        "",
    ),
    (
        "dense_gemm two blocks",
        "sm_100a",
        f"{_DENSE}/dense_gemm.py {_SMALL} {_PAIR} {_STORE} {_F16}",
        "",
    ),
    (
        "dense_gemm m-major",
        "sm_100a",
        f"{_DENSE}/dense_gemm.py --mnkl 128,256,128,1 {_F16} --a_major m --b_major n --c_major m",
        "",
    ),
    (
        "dense_gemm_software_pipeline",
        "sm_100a",
        f"{_DENSE}/dense_gemm_software_pipeline.py --mnkl 128,128,128,1 {_F16}",
        "",
    ),
    (
        "dense_gemm_persistent bf16",
        "sm_100a",
        f"{_DENSE}/dense_gemm_persistent.py {_SMALL} {_STORE} --ab_dtype BFloat16 --c_dtype BFloat16",
        "",
    ),
    (
        "dense_gemm_persistent fp8",
        "sm_100a",
        f"{_DENSE}/dense_gemm_persistent.py {_SMALL} {_STORE} --ab_dtype Float8E4M3FN --c_dtype Float16",
        "",
    ),
    (
        "dense_gemm_persistent_prefetch",
        "sm_100a",
        f"{_DENSE}/dense_gemm_persistent_prefetch.py {_SMALL} {_STORE} {_F16}",
        "",
    ),
    (
        "dense_gemm_persistent_dynamic",
        "sm_100a",
        f"{_DENSE}/dense_gemm_persistent_dynamic.py --mnkl 512,256,128,1 {_STORE} {_F16}",
        "",
    ),
    (
        "dense_gemm_alpha_beta_persistent",
        "sm_100a",
        f"{_DENSE}/dense_gemm_alpha_beta_persistent.py {_SMALL} {_F16}",
        "a finding: lanes of a warp read C, and its elected lane alone releases, with no bar.warp.sync between",
    ),
    ("blockscaled nvf4", "sm_100a", f"{_SCALED}/dense_blockscaled_gemm_persistent.py --mnkl 128,128,256,1", ""),
    ("blockscaled mxf8", "sm_100a", f"{_SCALED}/dense_blockscaled_gemm_persistent.py --mnkl 128,128,256,1 {_MXF8}", ""),
    ("sm103 blockscaled nvf4", "sm_103a", f"{_SCALED}/{_ULTRA} --sf_dtype Float8E4M3FN", ""),
    ("sm103 blockscaled mxf4", "sm_103a", f"{_SCALED}/{_ULTRA} --sf_vec_size 32", ""),
    (
        "blockscaled prefetch",
        "sm_100a",
        f"{_SCALED}/dense_blockscaled_gemm_persistent_prefetch.py --mnkl 128,128,256,1",
        "",
    ),
    (
        "blockwise_gemm",
        "sm_100a",
        f"{_KERNEL}/blockwise_gemm/blockwise_gemm.py --mnkl 128,128,256,1",
        "a finding: several threads copy one scale factor to one place by cp.async",
    ),
    (
        "grouped_gemm",
        "sm_100a",
        f"{_KERNEL}/grouped_gemm/grouped_gemm.py --num_groups 2 --problem_sizes_mnkl (128,128,128,1),(128,256,64,1)",
        "",
    ),
    ("mixed_input_gemm", "sm_100a", f"{_KERNEL}/mixed_input_gemm/mixed_input_gemm.py", ""),
    ("fmha", "sm_100a", f"{_KERNEL}/attention/fmha/fmha.py --q_shape 1,256,1,64 --k_shape 1,256,1,64", ""),
    (
        "fmha causal",
        "sm_100a",
        f"{_KERNEL}/attention/fmha/fmha.py --q_shape 1,256,1,64 --k_shape 1,256,1,64 --is_causal",
        "",
    ),
    ("rmsnorm", "sm_100a", f"{_KERNEL}/rmsnorm/rmsnorm.py --M 64 --N 1024", ""),
    (
        "activation epilogue",
        "sm_100a",
        "cute/blackwell/efc/activation_custom_epilogue_dense_gemm.py",
        "a finding: the lanes of a warp read, and its elected lane alone releases, with no bar.warp.sync between",
    ),
    ("cute_ext dense_gemm", "sm_100a", "cute_ext/blackwell/dense_gemm.py --mnkl 128,128,128,1", ""),
    ("cute_ext dense_gemm_2sm", "sm_100a", "cute_ext/blackwell/dense_gemm_2sm.py", ""),
    (
        "minimal_tensor_mma",
        "sm_100a",
        "experimental/primitives/tutorial/05_minimal_tensor_mma.py",
        "a finding: the elected thread of every warp initialises the mbarriers",
    ),
    (
        "tma_multicast",
        "sm_100a",
        "experimental/primitives/tma/tma_multicast.py",
        "a finding: the arrival at the cluster's barrier is relaxed, so it hands nothing on",
    ),
    *(
        (f"tcgen05/{name}", "sm_100a", f"{_PRIMITIVES}/tcgen05/{name}.py{words}", why)
        for name, words, why in (
            (
                "1cta_mma_a_from_tmem",
                "",
                "a finding: warps 1 to 3 store A to lanes 0-31 of tensor memory, which only warp 0 reaches",
            ),
            ("1cta_mma_basic", "", ""),
            ("1cta_mma_mn_major", "", ""),
            ("1cta_mma_pipeline", "", ""),
            ("2cta_mma_basic", "", ""),
            (
                "2cta_mma_blockscale_m128",
                "",
                "findings: cp.async of A's scale factors without a proxy fence, and no wait for the peer's of B",
            ),
            ("2cta_mma_tma_store", "", ""),
            ("clusterMxN_2cta_mma", "", ""),
            ("cp_narrow_a_to_tmem_mma", " --a-dtype all", ""),
            ("mcast_clusterMxN_1cta_mma", "", ""),
            ("mcast_clusterMxN_2cta_mma", "", ""),
            ("slicek_m32n8k128", "", "a finding: cp.async of A without a proxy fence before the product"),
            ("tmem_ld_st", "", ""),
            ("tmem_ld_to_stmatrix_transpose", "", ""),
        )
    ),
    (
        "cluster_tmem_reduce",
        "sm_100a",
        f"{_PRIMITIVES}/reduction/cluster_tmem_reduce.py",
        "a finding: its copy to tensor memory has no commit, and tcgen05.wait::st does not wait for it",
    ),
    (
        "minimal_tensor_mma_fp8",
        "sm_100a",
        f"{_PRIMITIVES}/tutorial/10_minimal_tensor_mma_fp8.py",
        "a finding: the elected thread of every warp initialises the mbarriers",
    ),
    (
        "gemm_M128_N128_Kany",
        "sm_100a",
        f"{_PRIMITIVES}/tutorial/gemm_M128_N128_Kany_TN_warpspec_multistage.py",
        "a finding: the elected thread of every warp initialises the mbarriers",
    ),
    (
        "geforce dense_gemm",
        "sm_120a",
        "cute/blackwell_geforce/kernel/dense_gemm/dense_gemm.py --mnkl 128,128,128,1",
        "",
    ),
    (
        "geforce blockscaled pingpong",
        "sm_120a",
        f"{_GEFORCE}/dense_blockscaled_gemm_persistent_pingpong.py --mnkl 128,128,256,1",
        "",
    ),
    (
        "geforce blockscaled cooperative",
        "sm_120a",
        f"{_GEFORCE}/dense_blockscaled_gemm_persistent_cooperative.py --mnkl 128,128,256,1",
        "",
    ),
    ("mla_decode fp16", "sm_100a", f"{_KERNEL}/attention/mla/mla_decode_fp16.py", ""),
    (
        "mla_decode fp8",
        "sm_100a",
        f"{_KERNEL}/attention/mla/mla_decode_fp8.py",
        "a finding: nothing waits for the last release of P, a commit to both blocks, before they end",
    ),
    (
        "fmha_bwd",
        "sm_100a",
        f"{_KERNEL}/attention/fmha/fmha_bwd.py --s_q 128 --s_k 128 --d 64 --h_q 1 --h_k 1",
        "a finding: the compute warps free tensor memory that the reduce warps still load dQ from",
    ),
    ("grouped blockscaled", "sm_100a", f"{_KERNEL}/blockscaled_grouped_gemm/grouped_blockscaled_gemm.py", ""),
    ("blockscaled amax", "sm_100a", f"{_SCALED}/dense_blockscaled_gemm_persistent_amax.py --mnkl 128,128,256,1", ""),
    ("grouped_mixed_input_gemm", "sm_100a", f"{_KERNEL}/mixed_input_gemm/grouped_mixed_input_gemm.py", ""),
    (
        "contiguous grouped",
        "sm_100a",
        f"{_KERNEL}/blockwise_gemm/contiguous_grouped_gemm.py --mnkl 128,128,256,1",
        "a finding: several threads copy one scale factor to one place by cp.async",
    ),
    (
        "masked grouped",
        "sm_100a",
        f"{_KERNEL}/blockwise_gemm/masked_grouped_gemm.py --mnkl 128,128,256,1",
        "a finding: its scheduler reads one element past the end of the rows of each group",
    ),
)
