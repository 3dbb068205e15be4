//! Initial values of tensors.

use super::encoding::{Reader, Wire};
use crate::number::random::{Stream, exp, ln, sqrt};
use alloc::vec;
use alloc::vec::Vec;

/// The rule that fills a tensor before the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// One number for every element.
    Constant(f64),
    /// Uniform on `[-bound, bound)`.
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Normal with mean 0, like [`Init::Normal`], but with a range of elements that are 0.
    NormalWithZeros {
        /// The standard deviation.
        deviation: f64,
        /// The first element that is 0, and the number of such elements.
        zeros: [u64; 2],
    },
    /// The logarithms of 1 to `most`, repeated as often as needed.
    Logarithms {
        /// The largest number whose logarithm is taken.
        most: u64,
    },
    /// The inverse softplus of a number whose logarithm is uniform between those of `min` and `max`.
    StepSizes {
        /// The smallest number.
        min: f64,
        /// The largest number.
        max: f64,
    },
    /// The norms of the slices of the parameter before it, along the axis that both have. A weight that is the product of a length and a
    /// direction then begins as its direction was drawn. See [`Program::initial`](super::Program::initial).
    Lengths,
    /// Uniform on `[low, high)`.
    Between {
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// Normal with this mean and standard deviation.
    NormalAround {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
    /// Normal with mean 0, but only values within `[low, high]`.
    TruncatedNormal {
        /// The standard deviation before truncation.
        deviation: f64,
        /// The smallest value.
        low: f64,
        /// The largest value.
        high: f64,
    },
    /// A matrix with orthogonal rows, or with orthogonal columns if those are fewer, each of this length.
    Orthogonal {
        /// The length of each row or column.
        gain: f64,
        /// Number of rows of the matrix. All other axes are its columns.
        rows: u64,
    },
    /// A left or right singular vector for the largest singular value of the layer's first parameter. It results from 15 steps of the
    /// power iteration on a random vector, as in PyTorch's `spectral_norm`. See [`Program::initial`](super::Program::initial).
    Singular {
        /// Elements of the axes before the axis of rows, of that axis, and of the axes after it.
        sizes: [u64; 3],
        /// True for the right vector, which has an element for each column.
        right: bool,
    },
}

impl Init {
    /// Draws all elements of a tensor, first to last.
    pub(super) fn fill(self, stream: &mut Stream, count: u64) -> Vec<f32> {
        match self {
            Init::TruncatedNormal { deviation, low, high } => {
                let shares = [low, high].map(|bound| share_below(bound / deviation));
                let mut draw = || shares[0] + stream.uniform() * (shares[1] - shares[0]);
                (0..count).map(|_| (deviation * normal_at(draw())).clamp(low, high) as f32).collect()
            }
            Init::Orthogonal { gain, rows } if rows > 0 && count.is_multiple_of(rows) => {
                orthogonal(stream, [rows as usize, (count / rows) as usize], gain)
            }
            _ => (0..count).map(|index| self.draw(stream, index)).collect(),
        }
    }

    /// Draws element `index` of a tensor that is filled from first to last.
    fn draw(self, stream: &mut Stream, index: u64) -> f32 {
        match self {
            Init::Constant(value) => value as f32,
            // Only a damaged program gets here: `fill` and `Program::initial` draw these.
            Init::Lengths | Init::TruncatedNormal { .. } | Init::Orthogonal { .. } | Init::Singular { .. } => 1.0,
            Init::Between { low, high } => (low + stream.uniform() * (high - low)) as f32,
            Init::NormalAround { mean, deviation } => (mean + stream.normal() * deviation) as f32,
            Init::Uniform(bound) => ((2.0 * stream.uniform() - 1.0) * bound) as f32,
            Init::Normal(deviation) => (stream.normal() * deviation) as f32,
            Init::NormalWithZeros { deviation, zeros: [first, count] } => {
                let drawn = (stream.normal() * deviation) as f32;
                if index.checked_sub(first).is_some_and(|after| after < count) { 0.0 } else { drawn }
            }
            Init::Logarithms { most } => ln((index % most.max(1) + 1) as f64) as f32,
            Init::StepSizes { min, max } => {
                let size = exp(ln(min) + stream.uniform() * (ln(max) - ln(min)));
                // The inverse of `log(1 + exp(x))`.
                (size + ln(1.0 - exp(-size))) as f32
            }
        }
    }
}

/// Returns the share of a normal distribution below `x` standard deviations, by a series of positive terms.
fn share_below(x: f64) -> f64 {
    if !(-8.0..8.0).contains(&x) {
        return if x < 0.0 { 0.0 } else { 1.0 };
    }
    // `exp(-x^2 / 2) / sqrt(2 pi) * (x + x^3 / 3 + x^5 / 15 + ..)` is the share between 0 and x.
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 + sum * exp(-0.5 * x * x) * 0.398_942_280_401_432_7
}

/// Returns the number of standard deviations below which a share `p` of a normal distribution is, to nine digits. Rational functions of
/// Acklam, "An algorithm for computing the inverse normal cumulative distribution function" (2003).
fn normal_at(p: f64) -> f64 {
    let within = |numbers: &[f64], x: f64| numbers.iter().fold(0.0, |sum, number| sum * x + number);
    let centre = [-39.696_830_286_653_76, 220.946_098_424_520_5, -275.928_510_446_968_7, 138.357_751_867_269];
    let centre_below = [-54.476_098_798_224_06, 161.585_836_858_040_9, -155.698_979_859_886_6, 66.801_311_887_719_72];
    let tail = [-0.007_784_894_002_430_293, -0.322_396_458_041_136_5, -2.400_758_277_161_838, -2.549_732_539_343_734];
    let tail_below = [0.007_784_695_709_041_462, 0.322_467_129_070_039_8, 2.445_134_137_142_996, 3.754_408_661_907_416];
    if (0.024_25..=0.975_75).contains(&p) {
        let (q, square) = (p - 0.5, (p - 0.5) * (p - 0.5));
        let above = (within(&centre, square) * square - 30.664_798_066_147_16) * square + 2.506_628_277_459_239;
        return q * above / ((within(&centre_below, square) * square - 13.280_681_552_885_72) * square + 1.0);
    }
    let (share, sign) = if p < 0.5 { (p, 1.0) } else { (1.0 - p, -1.0) };
    let q = sqrt(-2.0 * ln(share.max(f64::MIN_POSITIVE)));
    let above = (within(&tail, q) * q + 4.374_664_141_464_968) * q + 2.938_163_982_698_783;
    sign * above / (within(&tail_below, q) * q + 1.0)
}

/// Returns a matrix `[rows, columns]`, row by row, whose rows, or columns if those are fewer, are orthogonal and `gain` long.
///
/// It draws normal vectors and subtracts their projections on those before. That is the Q of a QR decomposition whose R has a positive
/// diagonal, as in `torch.nn.init.orthogonal_`. It costs `2 * most * least^2` multiplications for sides of `most` and `least`.
fn orthogonal(stream: &mut Stream, [rows, columns]: [usize; 2], gain: f64) -> Vec<f32> {
    let (count, length) = (rows.min(columns), rows.max(columns));
    let mut vectors = vec![0.0f64; count * length];
    for index in 0..count {
        let (before, own) = vectors.split_at_mut(index * length);
        let own = &mut own[..length];
        loop {
            own.fill_with(|| stream.normal());
            let drawn = dot(own, own);
            // The second round removes what rounding left in the first.
            for _ in 0..2 {
                for other in before.chunks_exact(length) {
                    let share = dot(own, other);
                    own.iter_mut().zip(other).for_each(|(own, other)| *own -= share * other);
                }
            }
            let left = dot(own, own);
            // A vector in the span of those before it has no direction left, so another is drawn.
            if left > 1e-20 * drawn {
                let factor = 1.0 / sqrt(left);
                own.iter_mut().for_each(|own| *own *= factor);
                break;
            }
        }
    }
    let at = |row: usize, column: usize| {
        let [vector, element] = if rows <= columns { [row, column] } else { [column, row] };
        (gain * vectors[vector * length + element]) as f32
    };
    (0..rows)
        .flat_map(|row| (0..columns).map(move |column| (row, column)))
        .map(|(row, column)| at(row, column))
        .collect()
}

/// Returns a singular vector of a matrix `w[a, r, b]` with columns `(a, b)`, after 15 steps of the power iteration on a random vector.
/// Returns `None` if the sizes are not those of `w`.
pub(super) fn singular_vector(
    stream: &mut Stream,
    w: &[f32],
    [outer, rows, inner]: [u64; 3],
    right: bool,
) -> Option<Vec<f32>> {
    let elements = outer.checked_mul(rows)?.checked_mul(inner)?;
    if elements != w.len() as u64 || elements == 0 {
        return None;
    }
    let [outer, rows, inner] = [outer, rows, inner].map(|size| size as usize);
    let (mut u, mut v) = (vec![0.0f64; rows], vec![0.0f64; outer * inner]);
    v.fill_with(|| stream.normal());
    let normalize = |x: &mut [f64]| {
        let length = sqrt(dot(x, x)).max(1e-12);
        x.iter_mut().for_each(|x| *x /= length);
    };
    normalize(&mut v);
    for _ in 0..15 {
        u.fill(0.0);
        for (index, part) in w.chunks_exact(inner).enumerate() {
            let of_columns = &v[index / rows * inner..][..inner];
            u[index % rows] += part.iter().zip(of_columns).map(|(w, v)| f64::from(*w) * v).sum::<f64>();
        }
        normalize(&mut u);
        v.fill(0.0);
        for (index, part) in w.chunks_exact(inner).enumerate() {
            let of_columns = &mut v[index / rows * inner..][..inner];
            of_columns.iter_mut().zip(part).for_each(|(v, w)| *v += f64::from(*w) * u[index % rows]);
        }
        normalize(&mut v);
    }
    let vector = if right { v } else { u };
    Some(vector.into_iter().map(|x| x as f32).collect())
}

/// Returns the dot product, as eight sums that a processor computes in parallel.
fn dot(left: &[f64], right: &[f64]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (left, right) = (left.chunks_exact(8), right.chunks_exact(8));
    let rest: f64 = left.remainder().iter().zip(right.remainder()).map(|(left, right)| left * right).sum();
    for (left, right) in left.zip(right) {
        sums.iter_mut().zip(left).zip(right).for_each(|((sum, left), right)| *sum += left * right);
    }
    sums.iter().sum::<f64>() + rest
}

impl Wire for Init {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, value) = match *self {
            Init::Logarithms { most } => {
                4u64.put(out);
                return most.put(out);
            }
            Init::StepSizes { min, .. } => (5, min),
            Init::Constant(value) => (0u64, value),
            Init::Uniform(bound) => (1, bound),
            Init::Normal(deviation) => (2, deviation),
            Init::NormalWithZeros { deviation, .. } => (3, deviation),
            Init::Lengths => (6, 0.0),
            Init::Between { low, .. } => (7, low),
            Init::NormalAround { mean, .. } => (8, mean),
            Init::TruncatedNormal { deviation, .. } => (9, deviation),
            Init::Orthogonal { gain, .. } => (10, gain),
            Init::Singular { right, .. } => (11, f64::from(u8::from(right))),
        };
        kind.put(out);
        value.put(out);
        match self {
            Init::NormalWithZeros { zeros, .. } => zeros.put(out),
            Init::StepSizes { max, .. } => max.put(out),
            Init::Between { high, .. } => high.put(out),
            Init::NormalAround { deviation, .. } => deviation.put(out),
            Init::TruncatedNormal { low, high, .. } => {
                low.put(out);
                high.put(out);
            }
            Init::Orthogonal { rows, .. } => rows.put(out),
            Init::Singular { sizes, .. } => sizes.put(out),
            _ => {}
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Init> {
        let kind = u64::take(from)?;
        if kind == 4 {
            return Some(Init::Logarithms { most: Wire::take(from)? });
        }
        let value = f64::take(from)?;
        match kind {
            0 => Some(Init::Constant(value)),
            1 => Some(Init::Uniform(value)),
            2 => Some(Init::Normal(value)),
            3 => Some(Init::NormalWithZeros { deviation: value, zeros: Wire::take(from)? }),
            5 => Some(Init::StepSizes { min: value, max: Wire::take(from)? }),
            6 => Some(Init::Lengths),
            7 => Some(Init::Between { low: value, high: Wire::take(from)? }),
            8 => Some(Init::NormalAround { mean: value, deviation: Wire::take(from)? }),
            9 => Some(Init::TruncatedNormal { deviation: value, low: Wire::take(from)?, high: Wire::take(from)? }),
            11 => Some(Init::Singular { right: value != 0.0, sizes: Wire::take(from)? }),
            10 => Some(Init::Orthogonal { gain: value, rows: Wire::take(from)? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mamba's initial values: A is -1 to -N, and step sizes are uniform on a logarithmic scale.
    #[test]
    fn state_space_models_begin_as_they_should() {
        let mut stream = Stream::new(1, 2);
        let drawn = [0, 1, 2, 3].map(|index| Init::Logarithms { most: 3 }.draw(&mut stream, index));
        assert_eq!(drawn, [0.0, core::f32::consts::LN_2, 1.098_612_3, 0.0]);
        let (low, high) = (ln(0.01), ln(0.5));
        let mut mean = 0.0;
        for index in 0..2000 {
            let bias = f64::from(Init::StepSizes { min: 0.01, max: 0.5 }.draw(&mut stream, index));
            let logarithm = ln(ln(1.0 + exp(bias)));
            assert!((low - 1e-4..high + 1e-4).contains(&logarithm), "{bias}");
            mean += logarithm / 2000.0;
        }
        assert!((mean - (low + high) / 2.0).abs() < 0.1, "{mean}");
    }

    /// Compares with `scipy.stats.norm.cdf` and `ppf`.
    #[test]
    fn shares_of_a_normal_distribution_are_right() {
        let known =
            [(-7.0, 1.279_812_543_885_835e-12), (-2.0, 0.022_750_131_948_179_21), (0.5, 0.691_462_461_274_013_1)];
        for (x, share) in known {
            assert!((share_below(x) - share).abs() < 1e-15, "{x}: {}", share_below(x));
        }
        for (p, x) in
            [(0.001, -3.090_232_306_167_813_5), (0.4, -0.253_347_103_135_799_7), (0.99, 2.326_347_874_040_840_8)]
        {
            assert!((normal_at(p) - x).abs() < 1e-8, "{p}: {}", normal_at(p));
        }
    }

    /// The deviation of a normal distribution that is cut at two deviations is 0.8796 of it: `scipy.stats.truncnorm(-2, 2).std()`.
    #[test]
    fn truncated_normals_stay_within_their_bounds() {
        let mut stream = Stream::new(3, 1);
        let drawn = Init::TruncatedNormal { deviation: 0.5, low: -1.0, high: 1.0 }.fill(&mut stream, 20_000);
        assert!(drawn.iter().all(|number| (-1.0..=1.0).contains(number)));
        let mean = drawn.iter().map(|&number| f64::from(number)).sum::<f64>() / 20_000.0;
        let square = drawn.iter().map(|&number| f64::from(number).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.01 && (square.sqrt() - 0.5 * 0.879_6).abs() < 0.005, "{mean} {square}");
        // Bounds far from all values give the nearer bound, as PyTorch clamps.
        let far = Init::TruncatedNormal { deviation: 0.01, low: 3.0, high: 4.0 }.fill(&mut stream, 10);
        assert!(far.iter().all(|number| (3.0..=4.0).contains(number)), "{far:?}");
    }

    #[test]
    fn orthogonal_matrices_have_orthogonal_sides() {
        for [rows, columns] in [[5, 12], [12, 5], [9, 9], [1, 7], [7, 1]] {
            let filled = Init::Orthogonal { gain: 1.5, rows }.fill(&mut Stream::new(1, 4), rows * columns);
            let at = |row: u64, column: u64| f64::from(filled[(row * columns + column) as usize]);
            let (count, length) = (rows.min(columns), rows.max(columns));
            let element = |vector, index| if rows <= columns { at(vector, index) } else { at(index, vector) };
            for first in 0..count {
                for second in 0..count {
                    let product: f64 = (0..length).map(|index| element(first, index) * element(second, index)).sum();
                    let expected = if first == second { 2.25 } else { 0.0 };
                    assert!((product - expected).abs() < 1e-6, "{rows} x {columns}: {first} {second}: {product}");
                }
            }
        }
    }

    #[test]
    fn initialisations_are_read_as_they_were_written() {
        let zeros = Init::NormalWithZeros { deviation: 0.5, zeros: [3, 4] };
        let all = [Init::Constant(1.0), Init::Uniform(0.25), Init::Normal(2.0), zeros];
        let scans = [Init::Logarithms { most: 16 }, Init::StepSizes { min: 0.001, max: 0.1 }];
        let named = [
            Init::Between { low: -0.5, high: 2.0 },
            Init::NormalAround { mean: 1.0, deviation: 0.02 },
            Init::TruncatedNormal { deviation: 0.02, low: -2.0, high: 1.5 },
            Init::Orthogonal { gain: 1.5, rows: 7 },
            Init::Singular { sizes: [1, 4, 9], right: true },
        ];
        for init in all.into_iter().chain(scans).chain(named) {
            let mut bytes = Vec::new();
            init.put(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Init::take(&mut reader), Some(init));
            assert!(reader.is_empty());
        }
    }
}
