"""What people type for a term of the vocabulary, beyond the synonyms that stand there: PyTorch's names, products, code.

Term → phrases. A phrase may name several terms (`tensor core`). Spaces, hyphens, plurals and endings do not matter:
`RMS-norms` is `rms norm`, and `words.SHORT` is applied first (`mm` is `gemm`).
"""

from __future__ import annotations

MORE = {
    # Operations: for most of PyTorch's no example is closer than one that computes in the same way
    "gemm": "matrix multiply,matrix product,gemv,matvec,dense layer,fully connected,addmm,einsum,projection,sgemm,"
    "hgemm,convolution,conv2d,tensor core,tensor cores",
    "blockwise_gemm": "groupwise gemm,128x128,1x128,deepseek,deep gemm",
    "grouped_gemm": "grouped,groups,list of gemm,expert gemm",
    "mixed_input_gemm": "mixed input,mixed precision gemm,int4 weights,int8 weights,w8a16,w4a8",
    "gated_mlp": "feed forward,geglu,gated linear unit",
    "distributed_gemm": "gemm all reduce,gemm reduce scatter,all gather gemm,overlap communication,row parallel linear",
    "mla": "deepseek,latent attention,mla decode",
    "layernorm": "norm,batch norm,instance norm,group norm",
    "rmsnorm": "norm",
    "reduction": "pooling,mse,huber loss,kl divergence,hinge loss,cosine similarity,triplet loss,l1 norm,"
    "l2 norm,frobenius norm,variance,standard deviation,log sum exp,argmin,min,warp reduction,"
    "block reduction,cluster reduction",
    "elementwise": "optimizer,adam,sgd,clamp,lerp,masked fill,leaky relu,elu,selu,mish,softplus,hardswish,"
    "hardsigmoid,softsign,silu,sigmoid,swish,tanh,exp,log,sqrt,where,dropout,element wise,vector add,axpy,map",
    "copy": "padding,roll,flip,index select,embedding,lookup table,slice,split,stack,cat",
    "collective": "reduce scatter,nccl",
    "integration": "c++,from c,pybind",
    # Features
    "epilogue_fusion": "epilogue,fused,fusion",
    "activation": "leaky relu,elu,selu,mish,softplus,hardswish",
    "warp_specialization": "producer consumer,consumer warp",
    "tma": "tensor map,tma load",
    "mma_sync": "tensor core,tensor cores",
    "wgmma": "tensor core,tensor cores",
    "tcgen05": "tensor core,tensor cores",
    "simt": "without tensor core,without tensor cores,no tensor cores",
    "gather": "embedding,index select",
    "backward": "training,dgrad,wgrad,grad",
    "warp_shuffle": "warp reduction,warp level reduction",
    "warp_vote": "ballot sync,any sync,all sync",
    "redux": "reduce add sync,reduce min sync,reduce max sync",
    "atomics": "atomic,scatter add,histogram",
    "pdl": "cuda grid dependency synchronize,previous kernel",
    "aot_export": "ahead of time,shared library,export kernel",
    "pointer_arguments": "raw pointer,pointer",
    "float16": "half precision",
    # Architectures and products; the index has nothing for those before sm_80, and `find` says so
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
