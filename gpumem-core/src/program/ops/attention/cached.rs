use crate::number::Role;
use crate::program::cache_entry::CacheEntry;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Causal attention of some time steps over themselves and all earlier ones, whose keys and values are cached. It is the decoding form
    /// of [`Attention`](super::Attention).
    ///
    /// * Inputs: queries, keys and values of this call's time steps, in one row or apart, as for [`Attention`](super::Attention).
    /// * Caches the keys `[cache, kv_heads * S]` and the values `[cache, kv_heads * V]` of every sample. The state says how many time steps
    ///   they hold. Keys and values of time steps that do not fit are dropped, and such a time step sees the others.
    /// * It runs in inference only, so it has no gradient.
    pub struct CachedAttention {
        /// Heads of the queries.
        pub heads: u64,
        /// Heads of the keys, and of the values: a divisor of `heads`.
        pub kv_heads: u64,
        /// Elements of a head of the queries, and of the keys.
        pub width: u64,
        /// Elements of a head of the values.
        pub values: u64,
        /// Factor of the products of queries and keys.
        pub scale: f64,
        /// Window of keys: a time step sees those whose index differs from its own by less. 0 if it sees all.
        pub window: u64,
        /// True if queries, keys and values are three inputs.
        pub apart: bool,
        /// Most time steps in the cache.
        pub cache: u64,
        /// Dimensions of the output: `[C, heads * V]`.
        pub shape: Shape,
    }
}

impl CachedAttention {
    /// Returns the time steps of this call.
    pub fn steps(&self) -> u64 {
        self.shape.dims().first().copied().unwrap_or(0)
    }

    /// Returns the elements of a row of queries, of keys and of values.
    pub fn parts(&self) -> [u64; 3] {
        let of = |heads: u64, width: u64| heads.saturating_mul(width);
        [of(self.heads, self.width), of(self.kv_heads, self.width), of(self.kv_heads, self.values)]
    }

    /// Returns the elements of a row of each input.
    pub fn rows(&self) -> Vec<u64> {
        let parts = self.parts();
        if self.apart { parts.to_vec() } else { vec![parts.into_iter().fold(0, u64::saturating_add)] }
    }

    /// Returns the number of parts into which the keys of a query are split. They keep a card busy even with few queries: all queries of
    /// a sample have at least 512 parts together, if the cache has as many runs of 256 time steps.
    pub fn split(&self) -> u64 {
        let queries = self.steps().saturating_mul(self.heads).max(1);
        QUERIES.div_ceil(queries).clamp(1, self.cache.div_ceil(PART).max(1))
    }

    /// True if each head of keys serves as many heads of queries, and all numbers fit each other.
    pub fn is_sound(&self) -> bool {
        let has_heads = self.kv_heads > 0 && self.heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        let has_elements = self.width > 0 && self.values > 0 && self.cache > 0 && self.steps() > 0;
        let is_scaled = self.scale.is_finite() && self.scale > 0.0;
        let row = self.heads.checked_mul(self.values);
        has_heads && has_elements && is_scaled && self.shape.rank() == 2 && row == Some(self.shape.last())
    }
}

/// Parts of all queries of a sample together.
const QUERIES: u64 = 512;

/// Time steps of the cache for which a query gets at most one part.
const PART: u64 = 256;

impl Rule for CachedAttention {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn caches(&self) -> Vec<CacheEntry> {
        let [_, keys, values] = self.parts();
        vec![
            CacheEntry::rows("cached_keys", [self.cache, keys]),
            CacheEntry::rows("cached_values", [self.cache, values]),
        ]
    }

    fn is_positioned(&self) -> bool {
        true
    }

    /// Returns memory for the result of each part of the keys. That is its largest score, the sum of its exponentials, and a row of values.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let _ = work;
        let each = self.values.checked_add(2)?.checked_mul(self.split())?;
        let shape = Shape::new(&[self.steps().checked_mul(self.heads)?, each]);
        Some(Workspace { role: Role::Statistic, shape, batched: true })
    }

    /// Counts both products over the whole cache.
    fn macs(&self) -> u64 {
        product(&[self.heads, self.steps(), self.cache, self.width.saturating_add(self.values)])
    }

    /// Returns none: the operation that it decodes for has the assertions.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any numbers.
    #[test]
    fn numbers_that_do_not_fit_are_not_sound() {
        let op = CachedAttention {
            heads: 4,
            kv_heads: 2,
            width: 8,
            values: 6,
            scale: 0.3,
            window: 0,
            apart: true,
            cache: 9,
            shape: Shape::new(&[3, 24]),
        };
        assert!(op.is_sound());
        assert_eq!((op.steps(), op.rows()), (3, vec![32, 16, 12]));
        let shapes: Vec<Shape> = op.caches().iter().map(|kept| kept.shape).collect();
        assert_eq!(shapes, [Shape::new(&[9, 16]), Shape::new(&[9, 12])]);
        for changed in [
            CachedAttention { heads: 0, ..op.clone() },
            CachedAttention { kv_heads: 3, ..op.clone() },
            CachedAttention { width: 0, ..op.clone() },
            CachedAttention { values: 5, ..op.clone() },
            CachedAttention { cache: 0, ..op.clone() },
            CachedAttention { scale: f64::NAN, ..op.clone() },
            CachedAttention { heads: u64::MAX, kv_heads: u64::MAX, ..op.clone() },
            CachedAttention { shape: Shape::new(&[0, 24]), ..op.clone() },
            CachedAttention { shape: Shape::new(&[1, 3, 24]), ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
