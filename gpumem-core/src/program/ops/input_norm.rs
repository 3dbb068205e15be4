use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Input normalisation: each channel less a mean, divided by a deviation. `y[c] = scale[c] x[c] + shift[c]`.
    ///
    /// * Input: x, numbers or bytes.
    /// * The gradient of numbers reads nothing. Bytes have none.
    pub struct Standardize {
        /// True if x consists of bytes, whose 0 to 255 stand for 0 to 1.
        pub bytes: bool,
        /// Dimensions of x and y, channels first.
        pub shape: Shape,
        /// The mean that is subtracted from each channel, or one for all channels.
        pub mean: Vec<f64>,
        /// The deviation by which each channel is divided, or one for all channels.
        pub std: Vec<f64>,
    }
}

impl Standardize {
    /// Returns the elements of a channel.
    pub fn inner(&self) -> u64 {
        product(self.shape.dims().get(1..).unwrap_or_default())
    }

    /// Returns a factor and a summand for each channel, or one pair if all channels have the same. `None` if the count of `mean` or `std` is
    /// neither 1 nor that of the channels.
    pub fn lines(&self) -> Option<Vec<[f32; 2]>> {
        let Standardize { mean, std, .. } = self;
        let channels = self.shape.dims().first().copied()?;
        let whole = if self.bytes { 255.0 } else { 1.0 };
        let line = |(mean, std): (&f64, &f64)| [1.0 / (whole * std), -mean / std].map(|number| number as f32);
        let fits = |numbers: &[f64]| numbers.len() == 1 || numbers.len() as u64 == channels;
        let count = mean.len().max(std.len());
        (fits(mean) && fits(std)).then(|| mean.iter().cycle().zip(std.iter().cycle()).take(count).map(line).collect())
    }
}

impl Rule for Standardize {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        if self.bytes { Vec::new() } else { vec![Gradient::in_place(&[(0, Reads::NOTHING)])] }
    }

    fn layouts(&self) -> Layouts {
        if self.shape.as_map().is_some() { Layouts::Maps(vec![self.shape]) } else { Layouts::Dense }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brightness_of_255_is_1() {
        let of = |bytes| Standardize { bytes, shape: Shape::new(&[1, 2, 2]), mean: vec![0.5], std: vec![0.25] };
        let at = |x: f32, bytes: bool| {
            of(bytes).lines().unwrap().iter().map(|[scale, shift]| scale * x + shift).sum::<f32>()
        };
        assert_eq!([at(255.0, true), at(0.0, true), at(1.0, false)], [2.0, -2.0, 2.0]);
    }

    #[test]
    fn one_number_stands_for_all_channels() {
        let of = |mean: &[f64], std: &[f64]| {
            Standardize { bytes: false, shape: Shape::new(&[3, 1, 1]), mean: mean.to_vec(), std: std.to_vec() }.lines()
        };
        assert_eq!(of(&[1.0], &[2.0, 4.0, 1.0]).unwrap(), [[0.5, -0.5], [0.25, -0.25], [1.0, -1.0]]);
        assert_eq!(of(&[1.0], &[2.0]).unwrap(), [[0.5, -0.5]]);
        assert_eq!((of(&[1.0, 2.0], &[1.0]), of(&[], &[1.0]), of(&[1.0; 4], &[1.0; 4])), (None, None, None));
    }
}
