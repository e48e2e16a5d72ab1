"""Words of records and queries: tokens, stems, synonyms, and what says nothing (standard library only)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

STOPWORDS = frozenset(
    """a about all also am an and any are as at be but by can code cute cutedsl cutlass do does dsl each example
    examples f fast find for from get give good gpu gpus has have help how i if im implement implementation
    in into is it its just kernel kernels like look looking make me my need nn nvidia of on one or our out
    over per please pytorch reference run runs running sample show so some something start starting such
    than that the their them then there this to try trying two up us use used uses using via want we what
    when where which while who will with without work would write writing you your""".split()
)
"""Words that tell nothing apart: English ones, and those that hold for every example."""

SHORT = {
    "attn": "attention",
    "bwd": "backward",
    "dequant": "dequantize",
    "fwd": "forward",
    "matmul": "gemm",
    "matmuls": "gemm",
    "mcast": "multicast",
    "mm": "gemm",
    "multiplication": "gemm",
    "multiplies": "gemm",
    "multiply": "gemm",
    "ptr": "pointer",
    "quant": "quantize",
    "resadd": "residual",
    "warpspec": "specialized",
}
"""Short forms and other names, written out in records and queries."""

MORE = {
    # Operations: for most of PyTorch's no example is closer than one that computes in the same way
    "gemm": "matrix multiply,matrix product,gemv,matvec,dense layer,fully connected,addmm,einsum,projection,sgemm,"
    "hgemm,convolution,conv2d,tensor core,tensor cores",
    "blockwise_gemm": "groupwise gemm,128x128,1x128,deepseek,deep gemm",
    "grouped_gemm": "grouped,groups,list of gemm,expert gemm",
    "mixed_input_gemm": "mixed input,mixed precision gemm,int4 weights,int8 weights,4 bit weights,8 bit weights,w8a16,"
    "w4a8,awq,gptq,quantized weights,quantized linear,weight quantization",
    "gated_mlp": "feed forward,geglu,gated linear unit",
    "distributed_gemm": "gemm all reduce,gemm reduce scatter,all gather gemm,overlap communication,row parallel linear",
    "mla": "deepseek,latent attention,mla decode",
    "layernorm": "norm,batch norm,instance norm,group norm",
    "rmsnorm": "norm",
    "ssm": "retention,retnet,rwkv,gated linear attention,gla,lightning attention,delta rule,delta net,deltanet,"
    "chunked scan,linear recurrent unit,xlstm,mlstm,kernelized attention",
    "reduction": "pooling,mse,huber loss,kl divergence,hinge loss,cosine similarity,triplet loss,l1 norm,"
    "l2 norm,frobenius norm,variance,standard deviation,log sum exp,argmin,min,warp reduction,"
    "block reduction,cluster reduction",
    "elementwise": "optimizer,adam,sgd,clamp,lerp,masked fill,leaky relu,elu,selu,mish,softplus,hardswish,"
    "hardsigmoid,softsign,silu,sigmoid,swish,tanh,exp,log,sqrt,where,dropout,element wise,vector add,axpy,map",
    "copy": "padding,roll,flip,index select,embedding,lookup table,slice,split,stack,cat",
    "collective": "reduce scatter,nccl",
    "tuning": "choose,choosing,tile sizes,heuristic,configuration search",
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
    "dequantization": "zero point,group scales,group size",
    "gather": "embedding,index select,index_select,take along dim,fancy indexing,grid sample,grid sampling,bilinear,"
    "bicubic,interpolation,interpolate,upsample,resize,deformable,deformable convolution,deformable attention,"
    "learned offset,roi align,roi pooling,texture,spatial transformer,optical flow,knn,nearest points,point cloud,"
    "csr,csc,coo,csr graph,sparse csr,sparse matrix,csr matrix,spmm,sddmm,sparse dense,adjacency,adjacency list,"
    "edge list,edge index,edges,node,graph attention,graph neural network,graph convolution,gnn,message passing",
    "recurrence": "linear recurrence,loop carried dependence,rnn,gru,lstm,ema,exponential moving average,"
    "state carried,cumprod,cummax,running sum,running product,running maximum,running minimum,previous step,"
    "previous token,dynamic programming,dynamic program,ctc,ctc loss,connectionist temporal classification,rnn t,"
    "rnnt,rnn transducer,transducer,transducer loss,viterbi,hidden markov model,hidden markov,markov chain,hmm,crf,"
    "conditional random field,forward backward algorithm,edit distance,levenshtein,levenshtein distance,"
    "dynamic time warping,time warping,dtw,needleman wunsch,smith waterman,sequence alignment,monotonic alignment,"
    "longest common subsequence,beam search,kalman filter,iir filter,wavefront,retention,retnet,rwkv",
    "stencil": "neighbour,neighbor,neighbors,jacobi,point stencil,shifted,blur,sobel,previous row,next row,"
    "box filter,gaussian filter,median filter,image filter,erosion,dilation,game of life,heat equation,wave equation",
    "scatter": "histogram,bincount,scatter reduce,embedding backward,edge list,edge index,edges,message passing,"
    "graph neural network,graph convolution,gnn",
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
"""Term → what people type for it beyond the synonyms of the vocabulary: PyTorch's names, products, code; with commas.

A phrase may name several terms (`tensor core`). Spaces, hyphens, plurals and endings do not matter: `RMS-norms` is
`rms norm`, and SHORT is applied first (`mm` is `gemm`).
"""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SUFFIX = re.compile(r"(?:ations?|tions?|ings?|ers?|ed|es|s|e)$")
_IZE = re.compile(r"is(?=(?:e|ed|es|ing|ation|ations|er)$)")


def tokens(text: str) -> list[str]:
    """Lower-case words of letters and digits, short forms written out."""
    return [SHORT.get(word, word) for word in re.findall(r"[a-z0-9]+", text.lower())]


def parts(name: str) -> list[str]:
    """The words inside a CamelCase name: `HopperGEMMKernel` is hopper, gemm, kernel."""
    return tokens(_HUMP.sub(" ", name))


@cache
def stem(word: str) -> str:
    """The word without its ending (`quantised`, `quantization` → `quantiz`); short words and codes stay."""
    if len(word) <= 4 or any(c.isdigit() for c in word):
        return word[:-1] if word.endswith("s") and len(word) == 4 and word[-2] != "s" else word
    base = _SUFFIX.sub("", _IZE.sub("iz", word), count=1)
    return base if len(base) >= 3 else word


def stems(words: Iterable[str]) -> list[str]:
    """The stems of words that tell something apart."""
    return [stem(word) for word in words if word not in STOPWORDS]
