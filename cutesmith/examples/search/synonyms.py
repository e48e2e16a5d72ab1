"""What people type for a term of the vocabulary, beyond the synonyms that stand there: PyTorch's names, products, code.

Term → phrases. A phrase may name several terms (`tensor core`). Spaces, hyphens, plurals and endings do not matter:
`RMS-norms` is `rms norm`, and `words.SHORT` is applied first (`mm` is `gemm`).
"""

from __future__ import annotations

MORE = {
    # Operations
    "gemm": "matrix multiply,matrix product,gemv,matvec,matrix vector,dense layer,fully connected,addmm,einsum,"
    "projection,sgemm,hgemm,convolution,conv2d,tensor core,tensor cores,cublas gemm",
    "blockscaled_gemm": "block scaled gemm,fp4 gemm,mxfp4 gemm,mx gemm",
    "blockwise_gemm": "groupwise gemm,128x128,1x128,deepseek,deep gemm",
    "grouped_gemm": "grouped,groups,grouped gemm,list of gemm,expert gemm",
    "mixed_input_gemm": "mixed input,mixed precision gemm,int4 weights,int8 weights,quantized weights,w8a16,w4a8",
    "gated_mlp": "feed forward,geglu,gated linear unit",
    "distributed_gemm": "gemm all reduce,gemm reduce scatter,all gather gemm,overlap communication,row parallel linear",
    "attention": "scaled dot product attention,multi head attention",
    "attention_backward": "attention backward,attention gradient,mha backward",
    "mla": "deepseek,latent attention,mla decode",
    "ssm": "state space,state space model,chunk scan",
    "rmsnorm": "norm,rms normalization",
    "layernorm": "norm,batch norm,instance norm,group norm",
    "reduction": "pooling,mse,huber loss,kl divergence,hinge loss,cosine similarity,triplet loss,l1 norm,l2 norm,"
    "frobenius norm,variance,standard deviation,log sum exp,argmin,min,warp reduction,block reduction,"
    "cluster reduction",
    "elementwise": "optimizer,adam,sgd,clamp,lerp,masked fill,leaky relu,elu,selu,mish,softplus,hardswish,hardsigmoid,"
    "softsign,silu,sigmoid,swish,tanh,exp,log,sqrt,where,dropout,element wise,vector add,axpy,map",
    "quantization": "cast to fp8",
    "copy": "padding,roll,flip,index select,embedding,lookup table,slice,split,stack,cat",
    "collective": "reduce scatter,nccl",
    "synchronization": "pipelining",
    "layout_algebra": "tiling,logical divide,zipped divide",
    "language": "beginner,first kernel,getting started",
    "integration": "c++,from c,pybind",
    "launch": "cuda event,dependent launch",
    "hardware_primitive": "ptx instruction",
    # Features
    "epilogue_fusion": "epilogue,fused,fusion",
    "activation": "leaky relu,elu,selu,mish,softplus,hardswish,act",
    "residual": "skip connection,c matrix",
    "online_softmax": "log sum exp",
    "warp_specialization": "producer consumer,consumer warp,warp role",
    "block_scaled": "mx,microscaling",
    "tma": "tensor map,tma load",
    "pipeline": "double buffer,software pipeline",
    "mma_sync": "tensor core,tensor cores",
    "wgmma": "tensor core,tensor cores",
    "tcgen05": "tensor core,tensor cores",
    "simt": "without tensor core,without tensor cores,no tensor cores",
    "varlen": "packed sequences,nested tensor",
    "causal": "autoregressive,lower triangular",
    "gather": "embedding,index select",
    "backward": "training,dgrad,wgrad,grad",
    "warp_shuffle": "warp reduction,warp level reduction",
    "warp_vote": "ballot sync,any sync,all sync",
    "redux": "reduce add sync,reduce min sync,reduce max sync",
    "atomics": "atomic,atomicadd,scatter add,histogram",
    "grid_sync": "grid wide barrier,grid sync,this grid",
    "multi_gpu": "multiple gpu,several gpu,tensor parallel,peer to peer",
    "pdl": "grid dependency synchronize,cuda grid dependency synchronize,previous kernel",
    "jax": "jax jit",
    "torch_op": "torch custom op,custom operator,torch autograd",
    "aot_export": "ahead of time,shared library,export kernel",
    "fake_tensor": "no gpu,compile without gpu",
    "pointer_arguments": "raw pointer,pointer",
    "struct": "storage struct",
    "smem": "shared mem,dynamic shared memory",
    "tma_reduce": "cp reduce async bulk",
    "dsmem": "red async,st async",
    # Data types
    "float16": "half precision",
    "float32": "single precision",
    "float64": "double precision",
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
    "float4_e2m1fn": "float4",
    "int4": "4 bit",
    "int8": "8 bit integer",
    # Architectures and products; no example is for those before sm_80, and that is said
    "sm_60": "pascal,p100,sm60",
    "sm_70": "volta,v100,sm70",
    "sm_75": "turing,t4,rtx 2080,sm75",
    "sm_89": "ada lovelace,lovelace",
    "sm_90a": "h20,h800,grace hopper",
    "sm_100a": "b100,grace blackwell",
    "sm_107a": "vera rubin",
    "sm_120a": "geforce,geforce blackwell,5090,5080",
    "sm_121a": "spark",
}
