//! Weighted sums along both axes of maps, `y[o, p] = sum over h and w of a[o, h] * b[p, w] * x[h, w]`, where few weights are not 0:
//! interpolation, and padding, whose gradients are sums of the same kind with their weights transposed.

use crate::parallel;

/// What each element along one axis of y reads of x: places and weights.
pub(super) struct Taps {
    /// The first tap of each element, and the number of all.
    starts: Vec<usize>,
    taps: Vec<(usize, f64)>,
}

impl Taps {
    /// The taps of elements in their order.
    pub(super) fn new<T: IntoIterator<Item = (usize, f64)>>(elements: impl Iterator<Item = T>) -> Taps {
        let (mut starts, mut taps) = (vec![0], Vec::new());
        for element in elements {
            taps.extend(element);
            starts.push(taps.len());
        }
        Taps { starts, taps }
    }

    /// What each of the `size` elements of x is read by.
    pub(super) fn transposed(&self, size: usize) -> Taps {
        let mut readers = vec![Vec::new(); size];
        for o in 0..self.len() {
            self.of(o).iter().for_each(|&(place, weight)| readers[place].push((o, weight)));
        }
        Taps::new(readers.into_iter())
    }

    /// Elements along the axis of y.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, element: usize) -> &[(usize, f64)] {
        &self.taps[self.starts[element]..self.starts[element + 1]]
    }
}

/// `y (+)=` the sums over planes of x that have rows of `width` elements and `height` of them, a row of `y` at a time: first along
/// the height, then along the width.
pub(super) fn sums(
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
