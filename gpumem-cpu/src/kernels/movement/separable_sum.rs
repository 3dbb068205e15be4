//! Sparse weighted sums along both axes of maps, `y[o, p] = sum over h and w of a[o, h] * b[p, w] * x[h, w]`. They serve interpolation and
//! padding. The gradients are sums of the same kind, with transposed weights.

use crate::parallel;

/// The taps of each element of y along one axis: indices of x and their weights.
pub(in crate::kernels) struct Taps {
    /// The first tap of each element, followed by the number of all taps.
    starts: Vec<usize>,
    taps: Vec<(usize, f64)>,
}

impl Taps {
    /// Builds the taps from those of each element, in order.
    pub(in crate::kernels) fn new<T: IntoIterator<Item = (usize, f64)>>(elements: impl Iterator<Item = T>) -> Taps {
        let (mut starts, mut taps) = (vec![0], Vec::new());
        for element in elements {
            taps.extend(element);
            starts.push(taps.len());
        }
        Taps { starts, taps }
    }

    /// Returns the transposed taps: for each of the `size` elements of x, the elements of y that read it.
    pub(in crate::kernels) fn transposed(&self, size: usize) -> Taps {
        let mut readers = vec![Vec::new(); size];
        for o in 0..self.len() {
            self.of(o).iter().for_each(|&(place, weight)| readers[place].push((o, weight)));
        }
        Taps::new(readers.into_iter())
    }

    /// Returns the elements of y along the axis.
    pub(in crate::kernels) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, element: usize) -> &[(usize, f64)] {
        &self.taps[self.starts[element]..self.starts[element + 1]]
    }
}

/// Writes the sums to `y`, or adds them, one row of `y` at a time: first along the height, then along the width. A plane of x has `height`
/// rows of `width` elements.
pub(in crate::kernels) fn sums(
    [rows, columns]: &[Taps; 2],
    [height, width]: [usize; 2],
    x: &[f32],
    (accumulate, y): (bool, &mut [f32]),
) {
    let tall = rows.len();
    parallel::pieces(None, y, columns.len(), |row, _, y| {
        let x = &x[row / tall * height * width..][..height * width];
        parallel::with_scratch(width, |line| {
            let taps = rows.of(row % tall);
            parallel::store(line, false, |w| {
                taps.iter().map(|&(h, weight)| weight * f64::from(x[h * width + w])).sum::<f64>() as f32
            });
            parallel::store(y, accumulate, |p| {
                columns.of(p).iter().map(|&(w, weight)| weight * f64::from(line[w])).sum::<f64>() as f32
            });
        });
        0.0
    });
}
