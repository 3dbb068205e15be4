use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

/// The pairs of positions that share a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distances {
    /// Pairs with the same distance along each axis, with its sign.
    Signed,
    /// Pairs with the same distance along each axis, whatever its sign.
    Absolute,
    /// Pairs with distances in the same bucket. Half of the buckets are for keys after the query.
    Buckets,
    /// Pairs with distances in the same bucket. All buckets are for keys before the query; a later key counts as the query itself.
    Earlier,
}
wire_enum!(Distances { Signed, Absolute, Buckets, Earlier });

record! {
    /// A learned number for each head and each distance between a query and a key.
    ///
    /// * Input: the table `[rows, heads]`. Output `[heads, T, T]`, one for the whole batch: rows are queries, columns keys.
    /// * The gradient reads nothing.
    pub struct RelativeBias {
        /// Heads.
        pub heads: u64,
        /// Rows and columns of the grid of positions, which are counted row after row. A sequence has one row.
        pub size: [u64; 2],
        /// The pairs that share a row.
        pub distances: Distances,
        /// Number of buckets, and the distance from which on all are in the last one. Used with buckets only.
        pub buckets: [u64; 2],
    }
}

impl RelativeBias {
    /// Returns the number of positions.
    pub fn positions(&self) -> u64 {
        product(&self.size)
    }

    /// Returns the number of rows of the table.
    pub fn rows(&self) -> u64 {
        let [height, width] = self.size;
        let signed = |side: u64| side.saturating_mul(2).saturating_sub(1);
        match self.distances {
            Distances::Signed => signed(height).saturating_mul(signed(width)),
            Distances::Absolute => self.positions(),
            Distances::Buckets | Distances::Earlier => self.buckets[0],
        }
    }

    /// True if there are positions, and buckets if they are used. Distances are within 31 bits.
    pub fn is_sound(&self) -> bool {
        let [buckets, farthest] = self.buckets;
        let is_grid = self.heads > 0 && self.size.iter().all(|side| (1..=1 << 20).contains(side));
        let is_sequence = self.size[0] == 1 && farthest <= 1 << 30;
        let are_buckets = |side: u64| {
            let is_count = (side..=1024).contains(&buckets) && buckets.is_multiple_of(side);
            is_sequence && is_count && farthest > buckets / side
        };
        is_grid
            && match self.distances {
                Distances::Signed | Distances::Absolute => true,
                Distances::Buckets => are_buckets(4),
                Distances::Earlier => are_buckets(2),
            }
    }

    /// Returns the numbers of distances between queries and keys along both axes: `[2 * height - 1, 2 * width - 1]`.
    pub fn offsets(&self) -> [u64; 2] {
        self.size.map(|side| side.saturating_mul(2).saturating_sub(1))
    }

    /// Returns the row of the table for each distance of a query from a key, from the smallest on. Distances along the columns' axis are
    /// adjacent. The operation must be sound.
    pub fn table(&self) -> Vec<u32> {
        let [height, width] = self.size;
        let [down, across] = self.offsets();
        let mut rows = Vec::new();
        for y in 0..down {
            for x in 0..across {
                rows.push(match self.distances {
                    Distances::Signed => y * across + x,
                    Distances::Absolute => y.abs_diff(height - 1) * width + x.abs_diff(width - 1),
                    Distances::Buckets | Distances::Earlier => self.bucket(x as i64 - (width as i64 - 1)),
                } as u32);
            }
        }
        rows
    }

    /// Returns the bucket of a query that is `after` positions after its key, by T5's rule. The first half of the buckets have one distance
    /// each, and the others grow by equal factors.
    fn bucket(&self, after: i64) -> u64 {
        let [all, farthest] = self.buckets;
        let (buckets, first) = match self.distances {
            Distances::Buckets if after < 0 => (all / 2, all / 2),
            Distances::Buckets => (all / 2, 0),
            _ => (all, 0),
        };
        let distance = if self.distances == Distances::Earlier { after.max(0) as u64 } else { after.unsigned_abs() };
        let exact = buckets / 2;
        if distance < exact {
            return first + distance;
        }
        let wide = buckets - exact;
        let reaches = |bucket: &u64| is_at_least([distance, exact], [farthest, exact], [*bucket, wide]);
        let own = (1..wide).rev().find(reaches).unwrap_or(0);
        first + exact + own
    }
}

/// True if `a[0] / a[1]` is at least `(b[0] / b[1])^(power[0] / power[1])`, in integers, so that no logarithm is rounded.
fn is_at_least(a: [u64; 2], b: [u64; 2], power: [u64; 2]) -> bool {
    // a0^p1 * b1^p0 >= b0^p0 * a1^p1
    let mut left = Whole::from(1);
    let mut right = Whole::from(1);
    for _ in 0..power[1] {
        left.multiply(a[0]);
        right.multiply(a[1]);
    }
    for _ in 0..power[0] {
        left.multiply(b[1]);
        right.multiply(b[0]);
    }
    left.digits
        .len()
        .cmp(&right.digits.len())
        .then_with(|| left.digits.iter().rev().cmp(right.digits.iter().rev()))
        .is_ge()
}

/// An integer of any size: digits of 32 bits, the lowest first.
struct Whole {
    digits: Vec<u32>,
}

impl Whole {
    fn from(digit: u32) -> Whole {
        Whole { digits: vec![digit] }
    }

    /// Multiplies by a number below 2^32.
    fn multiply(&mut self, factor: u64) {
        let mut carry = 0;
        for digit in &mut self.digits {
            let product = u64::from(*digit) * factor + carry;
            *digit = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.digits.push(carry as u32);
        }
    }
}

impl Rule for RelativeBias {
    fn output(&self) -> Shape {
        Shape::new(&[self.heads, self.positions(), self.positions()])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("RelativeBias", &[self.positions()], inputs[0], self.output())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(size: [u64; 2], distances: Distances, buckets: [u64; 2]) -> RelativeBias {
        RelativeBias { heads: 1, size, distances, buckets }
    }

    /// The indices of Swin for a window of 2 x 3, and those of LeViT.
    #[test]
    fn distances_of_a_window() {
        let op = of([2, 3], Distances::Signed, [0, 0]);
        assert_eq!((op.rows(), op.table()), (15, (0..15).collect()));
        let op = of([2, 3], Distances::Absolute, [0, 0]);
        assert_eq!((op.rows(), op.table()), (6, vec![5, 4, 3, 4, 5, 2, 1, 0, 1, 2, 5, 4, 3, 4, 5]));
    }

    /// `T5Attention._relative_position_bucket(memory - query, bidirectional, 32, 128)` of transformers 5.23.
    #[test]
    fn buckets_are_those_of_t5() {
        let op = of([1, 300], Distances::Buckets, [32, 128]);
        let bucket = |after: &i64| op.bucket(*after);
        let after = [0, 1, 7, 8, 9, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 299];
        let expected = [0, 1, 7, 8, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15];
        assert_eq!(after.iter().map(bucket).collect::<Vec<_>>(), expected);
        let later: Vec<u64> = after[1..].iter().map(|after| op.bucket(-after)).collect();
        assert_eq!(later, expected[1..].iter().map(|bucket| 16 + bucket).collect::<Vec<_>>());
        let op = of([1, 300], Distances::Earlier, [32, 128]);
        let bucket = |after: &i64| op.bucket(*after);
        let after = [-299, -1, 0, 1, 15, 16, 18, 19, 127, 128, 299];
        let expected = [0, 0, 0, 1, 15, 16, 16, 17, 31, 31, 31];
        assert_eq!(after.iter().map(bucket).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn grids_and_buckets_that_are_none_are_not_sound() {
        assert!(of([2, 3], Distances::Signed, [0, 0]).is_sound());
        assert!(of([1, 9], Distances::Buckets, [32, 128]).is_sound());
        for op in [
            of([0, 3], Distances::Signed, [0, 0]),
            of([1 << 40, 3], Distances::Absolute, [0, 0]),
            of([2, 3], Distances::Buckets, [32, 128]),
            of([1, 9], Distances::Buckets, [6, 128]),
            of([1, 9], Distances::Buckets, [32, 8]),
            of([1, 9], Distances::Earlier, [3, 128]),
            of([1, 9], Distances::Earlier, [32, 16]),
        ] {
            assert!(!op.is_sound(), "{op:?}");
        }
    }
}
