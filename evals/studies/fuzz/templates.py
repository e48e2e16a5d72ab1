"""Expressions of one or two operands: `{0}` and `{1}` are the names of tensors, `{v}` that of the result."""

from __future__ import annotations

FLOAT_UNARY = """
torch.relu({0}) torch.sigmoid({0}) torch.tanh({0}) torch.exp({0}) torch.log({0}.abs()+1e-3) torch.sqrt({0}.abs())
torch.rsqrt({0}.abs()+0.5) F.gelu({0}) F.gelu({0},approximate='tanh') F.silu({0}) F.softplus({0}) F.elu({0})
F.leaky_relu({0},0.1) F.hardswish({0}) F.mish({0}) F.hardtanh({0}) torch.floor({0}) torch.ceil({0}) torch.round({0})
torch.trunc({0}) torch.frac({0}) torch.sin({0}) torch.cos({0}) torch.erf({0}) torch.expm1({0}) torch.log1p({0}.abs())
torch.nan_to_num({0},0,9,-9) torch.reciprocal({0}) torch.sinc({0}) torch.logit({0},1e-3) torch.atan({0})
torch.deg2rad({0}) torch.angle({0}) torch.signbit({0}.nan_to_num()) torch.isnan({0}) torch.isfinite({0}) {0}**2 {0}**-1
{0}.abs()**0.5 2**{0} torch.exp2({0}) {0}.masked_fill({0}>1,-1.0)
{0}.nan_to_num().clamp(-99,99).to(torch.int32) {0}.nan_to_num().clamp(-99,99).to(torch.int64)
""".split()
UNARY = """
torch.abs({0}) torch.neg({0}) torch.sign({0}) torch.clamp({0},-1,1) {0}.float() {0}.double() {0}.half() {0}.bfloat16()
{0}.to(torch.bool) {0}.nan_to_num().clamp(0,99).to(torch.uint8) {0}*torch.ones_like({0})
{0}*0.5 {0}+1 2-{0} {0}*3 {0}/3 {0}//2 {0}%3 {0}>0 {0}==0 torch.square({0})
""".split()
BINARY = """
{0}+{1} {0}-{1} {0}*{1} {0}/{1} {0}+{1} {0}*{1} {0}/({1}.abs()+1) {0}%{1} {0}//{1} torch.fmod({0},{1})
torch.minimum({0},{1}) torch.maximum({0},{1}) torch.where({0}>{1},{0},{1}) torch.where({0}>0,{1},{0}) {0}>{1} {0}=={1}
{0}!={1} torch.remainder({0},{1}) torch.add({0},{1},alpha=2) torch.true_divide({0},{1}) torch.logical_and({0},{1})
""".split()
FLOAT_BINARY = """
torch.atan2({0},{1}) torch.heaviside({0},{1}) torch.xlogy({0},{1}) torch.special.xlog1py({0},{1}) torch.hypot({0},{1})
torch.copysign({0},{1}.nan_to_num()) torch.logaddexp({0},{1}) torch.fmax({0},{1}) torch.lerp({0},{1},0.3) {0}.abs()**{1}
{0}.where({1}>0,0.0)
""".split()
LOSSES = """
F.mse_loss({0},{1}) F.l1_loss({0},{1},reduction='sum') F.smooth_l1_loss({0},{1}) F.huber_loss({0},{1},reduction='none')
F.binary_cross_entropy_with_logits({0},{1}.sigmoid()) F.cosine_similarity({0},{1},dim=-1) F.kl_div({0},{1}.softmax(-1))
F.gaussian_nll_loss({0},{1},{0}.abs()+0.1) ({0}*{1}).sum(-1) F.soft_margin_loss({0},{1}.sign())
""".split()
VIEWS = """
{0}.unsqueeze(0) {0}.unsqueeze(-1) {0}.squeeze() {0}.squeeze(-1) {0}.squeeze(0) {0}.reshape(-1) {0}.reshape(-1,1)
{0}.transpose(0,-1) {0}.flatten(1) {0}[...,::2] {0}[1:] {0}[...,:1] {0}.chunk(2,-1)[0] {0}.flatten() {0}.t()
{0}.unsqueeze(1) {0}[0] {0}.contiguous() {0}.view({0}.shape) {0}.narrow(-1,0,1) {0}.expand(2,*{0}.shape)
{0}.unflatten(-1,(1,-1)) {0}.unflatten(-1,(-1,2)) {0}.movedim(0,-1) {0}.mT {0}.diagonal() {0}.unfold(-1,2,1)
""".split()
MOVES = """
{0}.flip(-1) {0}.flip((0,-1)) {0}.roll(1,-1) {0}.roll((2,-1),(0,-1)) {0}.roll(3) torch.cat(({0},{0}*2),-1)
torch.cat(({0}[1:],{0}[:1])) torch.stack(({0},{0}.neg()),-1) F.pad({0},(1,2)) F.pad({0},(0,1,-1,2))
F.pad({0},(1,1),mode='reflect') F.pad({0},(2,1),mode='replicate')
{0}.repeat(2,*[1]*{0}.dim()) {0}.repeat_interleave(2,-1) {0}.tril() {0}.triu(1)
{0}.index_select(0,torch.arange({0}.shape[0]//2+1)%{0}.shape[0])
""".split()
REDUCTIONS = """
{0}.sum({dims},keepdim={keep}) {0}.sum({dims},keepdim={keep}) {0}.amax({dims},keepdim={keep}) {0}.sum()
{0}.amin({dims},keepdim={keep}) {0}.argmax({dim},keepdim={keep}) {0}.argmin({dim}) {0}.max({dim}).values {0}.amax()
{0}.any({dim}) {0}.all({dim},keepdim={keep}) torch.count_nonzero({0},{dims}) {0}.prod({dim},keepdim={keep})
{0}.aminmax(dim={dim}).max
""".split()
FLOAT_REDUCTIONS = """
{0}.mean({dims},keepdim={keep}) {0}.mean() {0}.std({dims},keepdim={keep}) {0}.var({dims},keepdim={keep})
{0}.norm(dim={dims},keepdim={keep}) {0}.norm(p=1,dim={dims}) {0}.logsumexp({dims},keepdim={keep})
{0}.var({dims},correction=0) {0}.nanmean({dims}) {0}.softmax({dim}).max({dim}).values
""".split()
NORMS = """
torch.softmax({0},{dim}) torch.log_softmax({0},{dim}) F.layer_norm({0},{0}.shape[-1:])
F.rms_norm({0},{0}.shape[-1:],eps=1e-6)
F.normalize({0},dim={dim}) F.normalize({0},p=1,dim={dim}) F.softmin({0},{dim}) F.layer_norm({0},{0}.shape[-2:])
F.instance_norm({0}) F.group_norm({0},1)
""".split()
SCANS = """
{0}.cumsum({dim}) {0}.cumsum({dim}) {0}.cumprod({dim}) {0}.cummax({dim}).values {0}.cummin({dim}).values
{0}.flip({dim}).cumsum({dim}).flip({dim}) {0}.cumsum({dim})-{0} {0}.cummax({dim}).indices
F.pad({0},(1,0))[...,:-1].cumsum(-1) torch.cat((torch.zeros_like({0}[:1]),{0}[:-1])).cumsum(0)
""".split()
SELECTION = """
{0}.sort(dim={dim},stable=True).values {0}.sort(dim={dim},descending=True,stable=True).values
{0}.sort(dim={dim},stable=True).indices {0}.argsort(dim={dim},stable=True) {0}.topk(1,{dim},largest=False).values
{0}.topk(({0}.shape[{dim}]+1)//2,{dim}).values {0}.kthvalue(1,{dim}).values {0}.median({dim}).values
""".split()
WRITES = """
{0}.clone(); {v}[...,::2].mul_(2)
{0}.clone(); {v}[1:] = {0}[:-1]
{0}.clone(); {v}[...,:1] += {v}[...,-1:]
{0}.clone(); {v}[{0}>0] = 0
{0}.clone(); {v}[1:][{0}[1:]>{0}[:-1]] = -1
{0}.clone(); {v}.masked_fill_({0}!=0,3)
{0}.clone(); {v}[:,1:].copy_({1})
{0}.clone(); {v}.diagonal().add_(1)
{0}.clone(); {v}.transpose(0,-1)[1:].sub_({0}.transpose(0,-1)[:-1])
{0}.clone(); {v}.view(-1)[::3].neg_()
{0}.clone(); {v}.select({dim},0).copy_({v}.select({dim},-1))
{0}.clone(); {v}.chunk(2,{dim})[-1].mul_({0}.chunk(2,{dim})[-1])
{0}+{1}; {v}[0].zero_(); {v}[...,-1] = 1
{0}*2; {v}.mul_({v}).sub_(1)
{0}.unsqueeze(0).repeat(3,*[1]*{0}.dim()); {v}[1].add_(1); {v}[2] -= {v}[0]
torch.zeros_like({0}); {v}[...,1::2] = {0}[...,::2][...,:{v}[...,1::2].shape[-1]]
{0}.new_zeros(({0}.shape[0]+2,*{0}.shape[1:])); {v}[1:-1] = {0}
torch.empty_like({0}); torch.mul({0},{0},out={v})
torch.empty_like({0}+{1}); torch.add({0},{1},out={v})
{0}.amax({dim}); torch.sum({0},{dim},out={v})
torch.cat(({0},{0}),{dim}); torch.neg({0},out={v}.narrow({dim},0,{0}.shape[{dim}]))
torch.full_like({0},2); {v}.narrow({dim},0,1).copy_({0}.narrow({dim},-1,1))
""".strip().splitlines()
