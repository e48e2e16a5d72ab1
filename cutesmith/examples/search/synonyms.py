"""How people type the vocabulary's terms, beyond the synonyms that stand there: data of the search, and nothing else.

A phrase may name several terms (`nvfp4`: a dtype and a feature). Phrases are matched by the stems of their words, run
together, so that `rms norm`, `rmsnorm` and `RMS-norms` are one.
"""

from __future__ import annotations

MORE_OPERATIONS = {
    "gemm": "matrix multiply,matrix multiplies,multiply,multiplies,multiplication,gemv,matvec,"
    "matrix vector,matrix vector product,matrix vector multiply,"
    "mma matrix multiply,matrix product,dense layer,fully connected,addmm,einsum,projection,batched gemm,"
    "dense gemm,sgemm,hgemm,matmult,dot product of matrices,tensor core gemm,tensor core,tensor cores",
    "blockscaled_gemm": "block scaled gemm,fp4 gemm,mxfp4 gemm,microscaling gemm,blockscaled matmul,mx gemm",
    "blockwise_gemm": "blockwise scaling gemm,block wise gemm,groupwise gemm,"
    "per block scaling gemm,128x128,1x128,deepseek fp8,deepseek style,deepseek,deepgemm,deep gemm",
    "grouped_gemm": "grouped matmul,grouped mm,moe gemm,expert gemm,gemm per expert,variable size gemms,"
    "mixture of experts gemm,many small gemms,grouped,groups,list of matmuls",
    "mixed_input_gemm": "mixed input,mixed dtype gemm,mixed precision gemm,int4 weights,int8 weights,w8a16,w4a8,"
    "weight only quantization,dequant gemm,quantized weights",
    "gated_mlp": "gated mlp,feed forward,feedforward,geglu,gated linear unit",
    "distributed_gemm": "gemm all reduce,gemm allreduce,gemm reduce scatter,all gather gemm,allgather gemm,"
    "matmul all reduce,overlap communication,communication overlap,row parallel linear",
    "attention": "self attention,scaled dot product attention,flash attn,flashattention,flash attention 2,"
    "flash attention 3,fa 2,fa 3,multi head attention,qk softmax pv,cross attention",
    "attention_backward": "attention backward,attention gradient,sdpa backward,mha backward,flash attn bwd,"
    "backward of attention,attention bwd,backward attention,fa backward",
    "mla": "deepseek,deepseek v3,deepseek v2,latent attention,mla decode,deepseek mla,flash mla,multi latent attention",
    "ssm": "state space,state space model,mamba 2,chunk scan,ssm",
    "softmax": "row softmax,logits to probabilities",
    "cross_entropy": "nll,log likelihood,linear cross entropy,chunked loss",
    "rmsnorm": "rms normalization,rms layer norm,fused add norm,norm",
    "layernorm": "batch norm,batchnorm,instance norm,instancenorm,groupnorm,batch normalization,instance normalization,"
    "ln,group normalization,norm",
    "rotary": "rotary positional embedding,rotary encoding",
    "reduction": "average pooling,max pooling,pooling,pool,mse,mse loss,huber loss,kl divergence,kl div,"
    "hinge loss,cosine similarity,triplet loss,frobenius norm,l1 norm,l2 norm,variance,"
    "standard deviation,logsumexp,log sum exp,histogram,"
    "argmin,min,norm of,total,row max,column sum,accumulate over axis,reducing,"
    "warp reduce,warp reduction,warp level reduction,block reduce,block reduction,block level reduction,"
    "cta reduction,cta level reduction,cluster reduce,cluster reduction,shared memory reduction,cross cta reduction",
    "topk": "k largest,top k selection,topk softmax",
    "elementwise": "optimizer,adam,adamw,sgd,weight update,clamp,clip,lerp,where,masked fill,leaky relu,elu,"
    "selu,mish,softplus,hardswish,hardsigmoid,softsign,exp,log,sqrt,multiply by scalar,"
    "scale and shift,dropout,"
    "element wise,vector add,vector addition,tensor add,map,axpy,unary,binary op,broadcast add,silu,"
    "sigmoid,swish,tanh,activation function",
    "quantization": "per token quantization,per row quantization,quantizer,fp8 conversion,cast to fp8,"
    "mxfp8 quantization",
    "transpose": "matrix transpose,swap axes",
    "copy": "pad,padding,roll,flip,index select,embedding,embedding bag,lookup table,slice,split,stack,cat,"
    "data movement,gmem to smem copy,memory copy,grid stride copy",
    "collective": "reduce scatter,allgather,nccl,one shot all reduce,two shot all reduce",
    "synchronization": "producer consumer pipeline,pipelining",
    "layout_algebra": "layouts,cute layout,layout composition,logical divide,zipped divide,tiling,composed layout",
    "language": "dsl basics,dsl tutorial,beginner,first kernel,getting started,data types,how dsl works",
    "integration": "pytorch integration,c++,call from torch,jax integration,torch custom op,from c,pybind",
    "launch": "cooperative launch,cuda event,launch completion,dependent launch",
    "tuning": "auto tune,autotuning,tune configurations,find best tile size,benchmarking,speed of light",
    "hardware_primitive": "single instruction,ptx instruction,hardware instruction",
}
MORE_FEATURES = {
    "gather": "embedding,embedding bag,index select,lookup table",
    "online_softmax": "logsumexp,log sum exp",
    "epilogue_fusion": "epilogue,fused,fusion,post op,fused activation,epilogue visitor tree",
    "activation": "leaky relu,elu,selu,mish,softplus,hardswish,hardsigmoid,softsign,"
    "geglu,leaky relu,activations,nonlinearity,act",
    "residual": "residual connection,skip connection,fused add,add residual,c matrix",
    "warp_specialization": "warp specialised,warp spec,warpspec,ws,producer consumer,consumer warp,warp roles,"
    "specialized warps,math warpgroup",
    "block_scaled": "mx,microscaling,blockscaled,block scaling,block scale,scale factors,ue8m0,mxfp6,mxf8,mxf4,nvf4",
    "tma": "bulk tensor,tma load,tensor map",
    "cp_async": "async copies,asynchronous copy",
    "pipeline": "double buffer,double buffered,multi stage,software pipeline,software pipelining,prefetch stages,"
    "pipelined,stage",
    "persistent": "persistent scheduling,persistent cta,static scheduler,persistent scheduler",
    "cluster": "clusters,thread block clusters,cta cluster",
    "mma_sync": "warp level mma,mma m16n8k16,m16n8k16,tensor core,tensor cores",
    "wgmma": "tensor core,tensor cores",
    "tcgen05": "tensor core,tensor cores,tcgen 05,tcgen5,umma,tmem mma,fifth generation tensor core",
    "two_cta": "2 sm,two sm,2cta mma,paired cta,cta pairs",
    "simt": "without tensor cores,without tensor core,fp32 fma,no tensor core,cuda core gemm",
    "varlen": "var len,variable sequence length,variable length sequence,packed sequences,cumulative sequence lengths,"
    "cu seqlen,nested tensor,different lengths",
    "causal": "causal attention,autoregressive,lower triangular",
    "sliding_window": "sliding window attention,windowed",
    "decode": "decode phase,inference decode,single query,token generation",
    "paged_kv": "paged kv,page attention,paged kv cache,kv pages,vllm",
    "gqa": "grouped query,mqa gqa",
    "backward": "gradients,backward pass,training,dgrad,wgrad,grad",
    "warp_shuffle": "warp reduction,warp level reduction,shuffles,shfl_sync",
    "block_reduction": "block level reduction,cta level reduction,shared memory reduction",
    "cluster_reduction": "reduction over a cluster,cross cta reduction",
    "atomics": "scatter add,histogram,bincount,atomic,atomic operations",
    "grid_sync": "grid wide sync,grid synchronization,grid wide barrier,cooperative grid",
    "multi_gpu": "multi gpus,several gpus,multiple gpus,peer to peer,tensor parallel,p2p,nvlink,cross gpu",
    "multimem": "nv link sharp,multimem reduce",
    "pdl": "programmatic launch,pdl,previous kernel,overlap kernels,overlapping kernels,next kernel",
    "cuda_graph": "graph replay,capture in a graph",
    "jax": "jax ffi,jax jit",
    "torch_op": "torch custom op,torch compile,custom operator,torch library,torch autograd,register operator",
    "aot_export": "ahead of time,ahead of time compilation,export to c,compile offline,shared library,export kernel",
    "fake_tensor": "fake tensors,no gpu,compile without gpu,faketensor,symbolic shapes",
    "dynamic_layout": "dynamic shapes,dynamic layouts,variable shape",
    "pointer_arguments": "raw pointer,raw pointers,pass pointers,without dlpack,pointers",
    "inline_ptx": "custom ptx,inline ptx,raw ptx,ptx asm",
    "printing": "printing,print tensors,print values,debugging",
    "struct": "structs,named tuple,storage struct",
    "smem": "shared mem,smem allocator,dynamic shared memory",
    "swizzle": "swizzled,swizzling,bank conflict free",
    "vectorized_copy": "vectorized load,vector loads,128 bit,wide loads,vectorised",
    "predication": "predicated,boundary check,bounds check,irregular shape,odd sizes,non divisible",
    "dequantization": "dequantize,int4 to bf16,convert weights,upcasting",
    "quantized_output": "quantized output,output in fp8,fp8 quantized output,quantize output",
    "fp8_accumulation": "fp8 accumulation,promote accumulators,2x accumulation,higher precision accumulation",
    "split_k": "split k,stream k,parallel k,split along k",
    "dynamic_scheduler": "dynamic scheduling,dynamic tile scheduler,dynamic persistent scheduler,work stealing",
    "alpha_beta": "alpha and beta,alpha a b plus beta c",
    "tma_store": "store with tma,tma stores,tma write",
    "tma_multicast": "tma multi cast,multicast load",
    "tma_reduce": "tma reduce add",
    "named_barrier": "named barriers,barrier sync",
    "mbarrier": "mbarriers,m barrier",
    "sparse": "structured sparsity,sparse",
    "ptr_array": "array of pointers,pointers array",
    "register_reallocation": "register reallocation,reg alloc,setmaxreg",
}
MORE_DTYPES = {
    "float16": "half precision,fp 16",
    "bfloat16": "brain float,bf 16",
    "float32": "single precision,full precision,fp 32",
    "float64": "double precision",
    "float8_e4m3fn": "float8,8 bit float,fp 8,mxf8",
    "float8_e5m2": "float8,8 bit float,fp 8",
    "float4_e2m1fn": "float4,4 bit float,fp 4,mxf4,nvf4,f4",
    "float6_e3m2fn": "float6,mxfp6,f6",
    "float6_e2m3fn": "float6,mxfp6,f6",
    "int4": "4 bit integer,int 4,4 bit",
    "int8": "8 bit integer,int 8,w8",
    "tfloat32": "tensor float 32",
}
MORE_ARCHS = {
    "sm_80": "a30,a800,ga100",
    "sm_89": "ada lovelace,lovelace",
    "sm_90a": "h20,h800,grace hopper,gh100",
    "sm_100a": "b100,datacenter blackwell,data center blackwell,grace blackwell,gb100",
    "sm_103a": "blackwell b300",
    "sm_107a": "r100,vera rubin",
    "sm_120a": "geforce,consumer blackwell,5090,5080,geforce blackwell,desktop blackwell,rtx 50,rtx blackwell",
    "sm_121a": "spark",
}
OLD_ARCHS = {
    "sm_60": "pascal,p100,sm60",
    "sm_70": "volta,v100,sm70",
    "sm_75": "turing,t4,rtx 2080,sm75",
}
"""GPUs that no example is for: understood, so that it can be said."""

WEAK = {
    "mla": {"deepseek", "deepseek v2", "deepseek v3"},
    "blockwise_gemm": {"deepseek", "deepseek style"},
    "elementwise": {
        "exp",
        "log",
        "sqrt",
        "where",
        "clamp",
        "clip",
        "dropout",
        "leaky relu",
        "elu",
        "selu",
        "mish",
        "add",
        "relu",
        "gelu",
        "silu",
        "sigmoid",
        "swish",
        "tanh",
        "activation function",
        "map",
    },
    "gemm": {
        "tensor core",
        "tensor cores",
        "multiply",
        "multiplies",
        "multiplication",
        "linear",
        "mm",
        "projection",
        "einsum",
    },
    "reduction": {"pool", "variance", "histogram", "max", "sum", "mean", "amax", "min", "total", "reduce", "reducing"},
    "gated_mlp": {"swiglu", "glu", "geglu"},
    "grouped_gemm": {"moe", "grouped", "groups"},
    "tuning": {"benchmark", "profiling", "benchmarking"},
    "language": {"language", "tutorial"},
    "layout_algebra": {"layout", "layouts", "composition", "divide", "tiling"},
    "synchronization": {"barrier", "producer consumer", "pipelining", "producer consumer pipeline"},
    "utility": {"helper", "scheduler"},
    "launch": {"launch", "stream"},
    "copy": {"gather", "scatter", "concat", "slice", "split", "stack", "cat", "pad", "padding", "embedding"},
    "hardware_primitive": {"instruction", "ptx", "intrinsic"},
    "integration": {"export", "wrapper", "framework", "interop"},
    "rmsnorm": {"norm"},
    "layernorm": {"norm", "normalization"},
    "topk": {"router", "gating"},
    "cross_entropy": {"loss"},
    "epilogue_fusion": {"fused", "fusion"},
    "float32": {"single"},
    "bool": {"mask"},
    "uint8": {"byte"},
    "int32": {"int"},
    "backward": {"training"},
    "dropout": {"random"},
    "batched": {"batch"},
    "decode": {"generation"},
    "mma_sync": {"tensor core", "tensor cores"},
    "tcgen05": {"tensor core", "tensor cores"},
    "wgmma": {"tensor core", "tensor cores"},
}
"""Phrases that only hint at a term: they count for little, and an operation meant so yields to one that is named."""
