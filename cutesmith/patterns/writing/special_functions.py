"""Device functions that the DSL lacks, as source text: a generated kernel carries only those that it calls."""

from __future__ import annotations

SPECIAL_FUNCTIONS: dict[str, str] = {
    "place_in": '''
@cute.jit
def place_in(line: cute.Tensor, value, right: cutlass.Constexpr):
    """How many elements of a sorted line lie before a value, those that equal it too if `right`; NaN is the largest."""
    low, high = Int64(0), Int64(cute.size(line))
    while low < high:
        middle = (low + high) // 2
        found = line[middle].to(type(value))
        is_after = found > value if const_expr(right) else found >= value
        low = low if is_after else middle + 1
        high = middle if is_after else high
    return low
''',
    "float_of_small": '''
@cute.jit
def float_of_small(x: Int32) -> Float32:
    """An integer below 2^22 in size as the last digits of a float, by two additions: conversions have fewer lanes."""
    return (x + 0x4B400000).bitcast(Float32) - 12582912.0
''',
    "unit_beside": '''
@cute.jit
def unit_beside(y: Float32) -> Float32:
    """A power of two with the sign of y: their product is positive, and its inverse has all digits."""
    size, unit = cute.math.absf(y), Float32(1.0)
    if size < 2.0**-64:
        unit = Float32(2.0**64)
    if size > 2.0**64:
        unit = Float32(2.0**-64)
    return (unit.bitcast(Int32) | y.bitcast(Int32) & Int32(-(2**31))).bitcast(Float32)
''',
    "quotient": '''
@cute.jit
def quotient(x: Float32, unit: Float32, divisor: Float32, inverse: Float32) -> Float32:
    """x * unit / divisor, rounded once: a guess less what it is too large by, where that is finite."""
    x = x * unit
    guess = x * inverse
    rest = cute.math.fma(guess, divisor, -x)
    return cute.math.fma(-rest, inverse, guess) if cute.math.absf(rest) < Float32(math.inf) else guess
''',
    "sigmoid": '''
@cute.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    one = type(x)(1.0)
    return one / (one + cute.math.exp(-x))
''',
    "sigmoid_float32": '''
@cute.jit
def sigmoid_float32(x: Float32) -> Float32:
    """1 / (1 + exp(-x)) by exp(-|x|): the divisor lies in 1 to 2, where rcp.approx is right to one ulp."""
    small = cute.math.exp(-cute.math.absf(x))
    inverse = cute.arch.rcp_approx(1.0 + small)
    return inverse if x >= 0.0 else small * inverse
''',
    "sigmoid_fast": '''
@cute.jit
def sigmoid_fast(x: Float32) -> Float32:
    """1 / (1 + exp(-x)) by ex2.approx and rcp.approx: relative error below 2^-21."""
    return cute.arch.rcp_approx(1.0 + cute.math.exp2(x * -1.4426950408889634, fastmath=True))
''',
    "tanh_fast": '''
@cute.jit
def tanh_fast(x: Float32) -> Float32:
    """1 - 2 / (1 + exp(2 x)) by ex2.approx and rcp.approx, and x itself near 0: relative error below 1.4e-4.

    As a choice between the two it would be a branch: the compiler moves what only one side takes there.
    """
    far = 1.0 - 2.0 * cute.arch.rcp_approx(1.0 + cute.math.exp2(x * 2.8853900817779268, fastmath=True))
    return far + (x - far if cute.math.absf(x) < 0.02 else 0.0)
''',
    "normcdf": '''
@cute.jit
def normcdf(x):
    """Phi(x) = erfc(-x / sqrt(2)) / 2, accurate in the lower tail."""
    return type(x)(0.5) * cute.math.erfc(x * type(x)(-0.7071067811865476))
''',
    "normcdf_float32": '''
@cute.jit
def normcdf_float32(x: Float32) -> Float32:
    """Phi(x) by erfc(z) = t P(t) exp(-z^2), t = 1 / (1 + 0.375 z), z = |x| / sqrt(2).

    P is right to 1.2e-8; roundings in float32 make that 5e-7 of Phi for x > -2, 2e-6 at -6 and 8e-6 at -12.
    """
    t = cute.arch.rcp_approx(1.0 + cute.math.absf(x) * 0.2651650429449553)
    poly = -0.2873293161392212 + t * 0.06153840571641922
    poly = 0.43239715695381165 + t * poly
    poly = -0.22941182553768158 + t * poly
    poly = 0.2737237215042114 + t * poly
    poly = 0.12150532007217407 + t * poly
    poly = 0.20531339943408966 + t * poly
    poly = 0.21064965426921844 + t * poly
    poly = t * (0.2116134762763977 + t * poly)
    tail = 0.5 * poly * cute.math.exp2(x * x * -0.7213475204444817, fastmath=True)
    return 1.0 - tail if x > 0.0 else tail
''',
    "normcdf_fast": '''
@cute.jit
def normcdf_fast(x: Float32) -> Float32:
    """Phi(x) by erfc(z) = t P(t) exp(-z^2), t = 1 / (1 + 0.53 z), z = |x| / sqrt(2): relative error below 3.3e-5."""
    t = cute.arch.rcp_approx(1.0 + cute.math.absf(x) * 0.3747665940288702)
    poly = 0.4008524 + t * -0.18099197
    poly = 0.16692266 + t * poly
    poly = 0.31527975 + t * poly
    poly = t * (0.29793873 + t * poly)
    tail = 0.5 * poly * cute.math.exp2(x * x * -0.7213475204444817, fastmath=True)
    return 1.0 - tail if x > 0.0 else tail
''',
    "lgamma": '''
@cute.jit
def lgamma(x):
    """log |gamma(x)| in Float64: reflected below 1/2, multiplied up to 10, then Stirling's series (A&S 6.1.41)."""
    wide, one = x.to(Float64), Float64(1.0)
    is_low = wide < 0.5
    z = one - wide if is_low else wide
    product = one
    for _ in cutlass.range_constexpr(10):
        factor = z if z < 10.0 else one
        z = z + one if z < 10.0 else z
        product = product * factor
    y = one / (z * z)
    series = 1 / 1260 + y * (-1 / 1680 + y * (1 / 1188 + y * (-691 / 360360 + y / 156.0)))
    series = (1 / 12 + y * (-1 / 360 + y * series)) / z
    found = (z - 0.5) * cute.math.log(z) - z + 0.5 * math.log(2 * math.pi) + series - cute.math.log(product)
    rest = wide - cute.math.roundeven(wide)
    sine = cute.math.sin(cute.math.absf(rest) * math.pi)
    found = math.log(math.pi) - cute.math.log(sine) - found if is_low else found
    is_infinite = ((wide <= 0.0) & (rest == 0.0)) | (cute.math.absf(wide) == math.inf)
    return (Float64(math.inf) if is_infinite else found).to(type(x))
''',
    "digamma": '''
@cute.jit
def digamma(x):
    """Derivative of log gamma(x) in Float64: reflected below 0, summed up to 10, then its series (A&S 6.3.18)."""
    wide, one, zero = x.to(Float64), Float64(1.0), Float64(0.0)
    is_low = wide < 0.0
    z = one - wide if is_low else wide
    total, product = zero, one  # the sum of 1 / z is total / product: one division
    for _ in cutlass.range_constexpr(10):
        total = total * z + product if z < 10.0 else total
        product = product * z if z < 10.0 else product
        z = z + one if z < 10.0 else z
    y = one / (z * z)
    series = -1 / 240 + y * (1 / 132 + y * (-691 / 32760 + y / 12.0))
    series = 1 / 12 + y * (-1 / 120 + y * (1 / 252 + y * series))
    found = cute.math.log(z) - 0.5 / z - y * series - total / product
    rest = wide - cute.math.roundeven(wide)
    found = found - math.pi / cute.math.tan(rest * math.pi) if is_low else found
    found = Float64(math.nan) if is_low & (rest == 0.0) else found
    return (-one / wide if wide == 0.0 else found).to(type(x))
''',
    "erfinv": '''
@cute.jit
def erfinv(x):
    """The y with erf(y) = x: Giles' approximation (2010), which is right to 4e-7, and steps of Newton in Float64."""
    size = cute.math.absf(x.to(Float64))
    w = -cute.math.log((1.0 - size) * (1.0 + size))
    near, far = w - 2.5, cute.math.sqrt(w) - 3.0
    y, z = Float64(2.81022636e-08), Float64(-0.000200214257)
    for p, q in (
        (3.43273939e-07, 0.000100950558),
        (-3.5233877e-06, 0.00134934322),
        (-4.39150654e-06, -0.00367342844),
        (0.00021858087, 0.00573950773),
        (-0.00125372503, -0.0076224613),
        (-0.00417768164, 0.00943887047),
        (0.246640727, 1.00167406),
        (1.50140941, 2.83297682),
    ):
        y, z = p + y * near, q + z * far
    y = size * (y if w < 5.0 else z)
    for _ in cutlass.range_constexpr(2):
        miss = size - cute.math.erf(y) if size < 0.5 else cute.math.erfc(y) - (1.0 - size)
        y = y + miss * cute.math.exp(y * y) * (0.5 * math.sqrt(math.pi))
    y = Float64(math.inf) if size == 1.0 else y
    return (-y if x < type(x)(0.0) else y).to(type(x))
''',
    "sign_float": '''
@cute.jit
def sign_float(x):
    """-1, 0 or 1; 0 for NaN, as torch.sign."""
    one, zero = type(x)(1.0), type(x)(0.0)
    return one if x > zero else (-one if x < zero else zero)
''',
    "atan2": '''
@cute.jit
def atan2(y, x):
    """Angle of the point (x, y)."""
    return cute.math.atan2(y, x)
''',
    "floor_div_float": '''
@cute.jit
def floor_div_float(a, b):
    """a / b rounded down, from the exact remainder as torch.floor_divide takes it; a / b where b is 0."""
    zero, one = type(a)(0.0), type(a)(1.0)
    rest = cute.math.rem(a, b)
    quotient = (a - rest) / b
    quotient = quotient - one if (rest != zero) & ((b < zero) ^ (rest < zero)) else quotient
    down = cute.math.floor(quotient)
    down = down + one if quotient - down > type(a)(0.5) else down
    down = a / b * zero if quotient == zero else down
    return a / b if b == zero else down
''',
    "remainder_float": '''
@cute.jit
def remainder_float(a, b):
    """a - floor(a / b) * b: the sign of the divisor, as torch.remainder."""
    zero = type(a)(0.0)
    rest = cute.math.rem(a, b)
    return rest + b if (rest != zero) & ((rest < zero) ^ (b < zero)) else rest
''',
    "floor_div_int": '''
@cute.jit
def floor_div_int(a, b):
    """Integer quotient rounded down. b may be a register never loaded: no division by 0 may come of it."""
    return a // (type(a)(1) if b == type(a)(0) else b)
''',
    "remainder_int": '''
@cute.jit
def remainder_int(a, b):
    """Integer remainder with the sign of the divisor, as torch.remainder."""
    zero = type(a)(0)
    rest = a % (type(a)(1) if b == zero else b)
    return rest + b if (rest != zero) & ((rest < zero) ^ (b < zero)) else rest
''',
    "fmod_int": '''
@cute.jit
def fmod_int(a, b):
    """Integer remainder with the sign of the dividend, as torch.fmod (`%` is the machine's remainder)."""
    return a % (type(a)(1) if b == type(a)(0) else b)
''',
    "trunc_div_int": '''
@cute.jit
def trunc_div_int(a, b):
    """Integer quotient rounded towards zero (`//` rounds down)."""
    zero, one = type(a)(0), type(a)(1)
    down = a // (one if b == zero else b)
    return down + one if (down < zero) & (down * b != a) else down
''',
    "exponent": '''
@cute.jit
def exponent(x):
    """e of x = m 2^e with 0.5 <= |m| < 1; 0 for 0, infinity and NaN."""
    integer, digits, least = (Int64, 52, -1022) if const_expr(type(x) is Float64) else (Int32, 23, -126)
    is_tiny = cute.math.absf(x) < type(x)(2.0**least)
    scaled = x * type(x)(2.0**(digits + 1)) if is_tiny else x
    field = (scaled.bitcast(integer) >> digits) & integer(3 - 2 * least)
    found = field + (integer(least - digits - 1) if is_tiny else integer(least))
    return Int32(0) if (x == type(x)(0.0)) | (x - x != type(x)(0.0)) else found.to(Int32)
''',
    "mantissa": '''
@cute.jit
def mantissa(x):
    """m of x = m 2^e with 0.5 <= |m| < 1; x itself for 0, infinity and NaN."""
    integer, digits, least = (Int64, 52, -1022) if const_expr(type(x) is Float64) else (Int32, 23, -126)
    scaled = x * type(x)(2.0**(digits + 1)) if cute.math.absf(x) < type(x)(2.0**least) else x
    field = integer(3 - 2 * least) << digits
    found = ((scaled.bitcast(integer) & (field ^ integer(-1))) | (integer(-least) << digits)).bitcast(type(x))
    return x if (x == type(x)(0.0)) | (x - x != type(x)(0.0)) else found
''',
    "to_float8_e5m2": '''
@cute.jit
def to_float8_e5m2(x: Float32) -> Float32:
    """x rounded to float8_e5m2, infinity beyond its largest number as PyTorch has it: the instruction gives +-57344."""
    rounded = x.to(Float8E5M2).to(Float32)
    return rounded if cute.math.absf(x) < Float32(61440.0) else x * Float32(math.inf)
''',
    "gcd_int": '''
@cute.jit
def gcd_int(a, b):
    """Greatest common divisor by Euclid's algorithm."""
    zero = type(a)(0)
    large = -a if a < zero else a
    small = -b if b < zero else b
    while small != zero:
        rest = large % small
        large = small
        small = rest
    return large
''',
    "pow_int": '''
@cute.jit
def pow_int(a, b):
    """Integer power by repeated multiplication; a negative exponent gives 0, or +-1 for a base of +-1."""
    one, zero = type(a)(1), type(a)(0)
    result = one
    base = a
    exponent = b
    while exponent > zero:
        result = result * base if (exponent & one) == one else result
        base = base * base
        exponent = exponent >> one
    unit = base if (b & one) == one else one
    return result if b >= zero else (unit if (a == one) | (a == -one) else zero)
''',
}
