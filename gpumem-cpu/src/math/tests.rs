//! Every function against double precision, and its bits on every instruction set that the machine has.

use super::*;
use crate::simd::Loop;

/// Computes a function of many numbers, in a loop that the compiler may vectorise.
struct Each<'a, F> {
    x: &'a [f32],
    y: &'a mut [f32],
    function: F,
}

/// A function of this module.
trait Function: Copy {
    fn value(self, x: f32) -> f32;
}

impl<F: Function> Loop for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Each { x, y, function } = self;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = function.value(x);
        }
    }
}

/// Returns the values of a function on every instruction set, first without any.
fn on_all_instruction_sets<F: Function>(x: &[f32], function: F) -> Vec<(&'static str, Vec<f32>)> {
    use pulp::Simd;
    let run = |name, call: &dyn Fn(Each<'_, F>)| {
        let mut y = vec![0.0; x.len()];
        call(Each { x, y: &mut y, function });
        (name, y)
    };
    let mut all = vec![run("scalar", &|each| pulp::Scalar::new().vectorize(each))];
    all.push(run("widest", &|each| crate::simd::wide(each)));
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(v3) = pulp::x86::V3::try_new() {
            all.push(run("AVX2", &|each| v3.vectorize(each)));
        }
        if let Some(v4) = pulp::x86::V4::try_new() {
            all.push(run("AVX-512", &|each| v4.vectorize(each)));
        }
    }
    all
}

/// Returns every `step`th `f32` in the order of bits, from zero through NaN to the negative ones.
fn sampled(step: u32) -> impl Iterator<Item = f32> {
    (0..=u32::MAX / step).map(move |index| f32::from_bits(index * step))
}

/// Zeros, the smallest numbers, the largest, those about which functions change their way, infinities and NaN.
fn special() -> Vec<f32> {
    let sizes = [
        0.0,
        f32::from_bits(1),
        f32::from_bits(0x007F_FFFF),
        f32::MIN_POSITIVE,
        1e-30,
        1e-8,
        0.346_573_6,
        0.5,
        0.625,
        std::f32::consts::FRAC_1_SQRT_2,
        std::f32::consts::FRAC_PI_4,
        0.927_734_4,
        1.0,
        std::f32::consts::SQRT_2,
        3.92,
        4.0,
        9.01,
        14.3,
        15.0,
        16_777_216.0,
        87.336_55,
        88.722_84,
        88.722_85,
        89.0,
        103.27,
        103.98,
        104.0,
        1e10,
        // Of all `f32`, nearest to a multiple of a quarter turn.
        f32::from_bits(0x6A1976F1),
        16_367_173.0 * 2f32.powi(72),
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
    ];
    let next = |x: f32| [x.to_bits().saturating_sub(1), x.to_bits(), x.to_bits() + 1].map(f32::from_bits);
    sizes.into_iter().flat_map(next).flat_map(|x| [x, -x]).collect()
}

/// Returns the distance of `found` from `expected` in units of the last place of an `f32`, or infinity if one is no number and the other is.
fn distance(found: f32, expected: f64) -> f64 {
    let rounded = expected as f32;
    if found.is_nan() || rounded.is_nan() || found.is_infinite() || rounded.is_infinite() {
        let is_same = found == rounded || found.is_nan() && rounded.is_nan();
        // The largest number is a unit below what rounds to infinity.
        let is_edge = rounded.abs().max(found.abs()) == f32::INFINITY && rounded.abs().min(found.abs()) == f32::MAX;
        return if is_same { 0.0 } else { [f64::INFINITY, 1.0][usize::from(is_edge)] };
    }
    let above = f32::from_bits(rounded.abs().max(f32::MIN_POSITIVE).to_bits() + 1);
    let unit = f64::from(above) - f64::from(rounded.abs().max(f32::MIN_POSITIVE));
    (f64::from(found) - expected).abs() / unit
}

/// Asserts that a function is right to within some units in the last place, and has the same bits on every instruction set.
fn hold<F: Function>(name: &str, x: &[f32], function: F, bound: f64, right: impl Fn(f64) -> f64) {
    let all = on_all_instruction_sets(x, function);
    for (set, found) in &all {
        for ((&x, found), scalar) in x.iter().zip(found).zip(&all[0].1) {
            assert!(found.to_bits() == scalar.to_bits() || found.is_nan() && scalar.is_nan(), "{name}({x:e}) on {set}");
        }
    }
    for (&x, &found) in x.iter().zip(&all[0].1) {
        let expected = right(f64::from(x));
        let distance = distance(found, expected);
        assert!(distance <= bound, "{name}({x:e}) is {found:e} and should be {expected:e}: {distance} units");
        // A function through 0 keeps the sign of 0.
        assert!(x != 0.0 || found != 0.0 || found.to_bits() == x.to_bits(), "{name}({x:e}) is {found:e}");
    }
}

/// Makes a [`Function`] of a closure, whose loop would not be vectorised.
macro_rules! function {
    (|$x:ident| $value:expr) => {{
        #[derive(Clone, Copy)]
        struct It;

        impl Function for It {
            #[inline(always)]
            fn value(self, $x: f32) -> f32 {
                $value
            }
        }
        It
    }};
}

fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn hold_all(x: &[f32]) {
    hold("exp", x, function!(|x| exp(x)), 2.0, f64::exp);
    hold("expm1", x, function!(|x| expm1(x)), 2.0, f64::exp_m1);
    hold("tanh", x, function!(|x| tanh(x)), 2.0, f64::tanh);
    hold("sigmoid", x, function!(|x| sigmoid(x)), 2.0, |x| 1.0 / (1.0 + (-x).exp()));
    hold("log", x, function!(|x| log(x)), 2.0, f64::ln);
    hold("log1p", x, function!(|x| log1p(x)), 2.0, f64::ln_1p);
    let softplus_of = |x: f64| if x < 0.0 { x.exp().ln_1p() } else { x + (-x).exp().ln_1p() };
    hold("softplus", x, function!(|x| softplus(x)), 2.0, softplus_of);
    hold("erf", x, function!(|x| erf(x)), 2.0, libm::erf);
    hold("sin", x, function!(|x| sin(x)), 2.0, f64::sin);
    hold("cos", x, function!(|x| cos(x)), 2.0, f64::cos);
    // Products of several rounded numbers, and a limit where the product would be infinity times 0.
    hold("gelu", x, function!(|x| gelu(x)), 6.0, |x| if x == f64::NEG_INFINITY { 0.0 } else { x * normal(x) });
    for exponent in [2.0, 3.0, 0.5, -1.5, 1e-3, -17.0] {
        hold_power(x, exponent);
    }
}

/// Asserts that a power is right, on every instruction set.
fn hold_power(x: &[f32], exponent: f32) {
    #[derive(Clone, Copy)]
    struct Power(f32);

    impl Function for Power {
        #[inline(always)]
        fn value(self, x: f32) -> f32 {
            pow(x, self.0)
        }
    }
    let all = on_all_instruction_sets(x, Power(exponent));
    for (set, found) in &all {
        for (&x, &found) in x.iter().zip(found) {
            let expected = f64::from(x).powf(f64::from(exponent));
            let distance = distance(found, expected);
            assert!(distance <= 0.51, "{x:e} to the power of {exponent} on {set} is {found:e}, not {expected:e}");
            let is_same_sign = expected.is_nan() || found.is_sign_negative() == expected.is_sign_negative();
            assert!(is_same_sign, "{x:e} to the power of {exponent} has the sign of {found:e}");
        }
    }
}

#[test]
fn values_are_right_on_every_instruction_set() {
    hold_all(&special());
    hold_all(&sampled(60_013).collect::<Vec<_>>());
}

/// With `--release` loops are vectorised, as for users.
#[test]
#[ignore = "it takes a minute"]
fn values_are_right_everywhere() {
    let all: Vec<f32> = sampled(251).collect();
    all.chunks(1 << 20).for_each(hold_all);
}

#[test]
fn powers_of_special_numbers() {
    let numbers =
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e30, -1e30];
    for x in numbers {
        for exponent in numbers {
            let (found, expected) = (pow(x, exponent), x.powf(exponent));
            assert!(distance(found, f64::from(expected)) <= 1.0, "{x}^{exponent}: {found} {expected}");
            assert!(
                found.is_nan() || found.is_sign_negative() == expected.is_sign_negative(),
                "{x}^{exponent}: {found}"
            );
        }
    }
}

/// The slope passes through 0 at -0.75, so it is compared with the larger of its two terms.
#[test]
fn slope_of_gelu() {
    for x in special().into_iter().chain(sampled(60_013)).filter(|x| x.is_finite()) {
        let wide = f64::from(x);
        let density = (-0.5 * wide * wide).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let terms = [normal(wide), wide * density];
        let (found, expected) = (f64::from(gelu_slope(x)), terms[0] + terms[1]);
        let larger = (terms[0].abs().max(terms[1].abs()) as f32).max(f32::MIN_POSITIVE);
        let unit = f64::from(f32::from_bits(larger.to_bits() + 1)) - f64::from(larger);
        assert!((found - expected).abs() <= 6.0 * unit, "{x:e}: {found:e} {expected:e}");
    }
    assert!(gelu_slope(f32::NAN).is_nan());
    assert_eq!([f32::NEG_INFINITY, f32::INFINITY].map(gelu_slope), [0.0, 1.0]);
}

/// Returns a number of which each bit of `x` decides some, and which is never NaN.
#[inline(always)]
fn mixed(x: f64) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits ^ (bits >> 32)) as u32 & 0x3FFF_FFFF)
}

/// Functions in double precision, of numbers of single precision, which losses have.
#[test]
fn values_in_double_precision() {
    let close = |name: &str, x: f64, found: f64, expected: f64, bound: f64| {
        let is_same = found == expected || found.is_nan() && expected.is_nan();
        let error = (found - expected).abs();
        assert!(is_same || error <= bound * expected.abs(), "{name}({x:e}) is {found:e} and should be {expected:e}");
    };
    let numbers: Vec<f32> = special().into_iter().chain(sampled(60_013)).collect();
    for x in numbers.iter().copied().map(f64::from).chain([-745.0, -709.0, -707.0, 708.0, 710.0]) {
        let expected = if x < -708.0 { 0.0 } else { x.exp() };
        close("exp", x, exp_double(x), if x > 709.0 { f64::INFINITY } else { expected }, 1e-12);
        close("log", x, log_double(x), x.ln(), 1e-14);
        if x.is_nan() || x >= 0.0 {
            close("log1p", x, log1p_double(x), x.ln_1p(), 1e-14);
        }
    }
    // A NaN has other bits on other machines.
    let numbers: Vec<f32> = numbers.into_iter().filter(|x| !x.is_nan()).collect();
    let sizes: Vec<f32> = numbers.iter().copied().filter(|x| x.is_sign_positive()).collect();
    same_bits("exp", &numbers, function!(|x| mixed(exp_double(f64::from(x)))));
    same_bits("log", &sizes, function!(|x| mixed(log_double(f64::from(x)))));
    same_bits("log1p", &sizes, function!(|x| mixed(log1p_double(f64::from(x)))));
}

/// Asserts that a function has the same bits on every instruction set.
fn same_bits<F: Function>(name: &str, x: &[f32], function: F) {
    let all = on_all_instruction_sets(x, function);
    for (set, found) in &all {
        for ((x, found), scalar) in x.iter().zip(found).zip(&all[0].1) {
            assert_eq!(found.to_bits(), scalar.to_bits(), "{name}({x:e}) on {set}");
        }
    }
}
