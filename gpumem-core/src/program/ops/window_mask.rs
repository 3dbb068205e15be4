use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::{Shape, product};
use alloc::vec::Vec;

record! {
    /// The mask of shifted windows: 0 for pairs of positions in one region of the map, else -100. It hides pairs that are neighbours only because
    /// the map was rolled before it was cut into windows.
    ///
    /// * Input: none. Output: `[windows, 1, T, T]`. Queries and keys are the positions of a window, row after row.
    pub struct WindowMask {
        /// Height and width of the map.
        pub size: [u64; 2],
        /// Height and width of a window, which divide those of the map.
        pub window: [u64; 2],
        /// Rows and columns by which the map was rolled up and to the left.
        pub shift: [u64; 2],
    }
}

/// The bias of a hidden pair, as in PyTorch. It makes the attention weight 0 in every format.
pub const HIDDEN: f32 = -100.0;

impl WindowMask {
    /// True if windows divide the map, and it was rolled by less than a window.
    pub fn is_sound(&self) -> bool {
        let axis = |axis: usize| {
            let [size, window, shift] = [self.size[axis], self.window[axis], self.shift[axis]];
            (1..=1 << 20).contains(&size) && window > 0 && size.is_multiple_of(window) && shift < window
        };
        axis(0) && axis(1) && self.output().elements().is_some()
    }

    /// Returns the number of windows, and of positions in one.
    pub fn counts(&self) -> [u64; 2] {
        let along = |axis: usize| self.size[axis] / self.window[axis].max(1);
        [along(0).saturating_mul(along(1)), product(&self.window)]
    }

    /// Returns the region of a position along an axis. Region 0 is all before the last window. In that window, 1 is the part that was there
    /// before the map was rolled, and 2 the part that came from the other side.
    pub fn region(&self, axis: usize, position: u64) -> u64 {
        let [size, window, shift] = [self.size[axis], self.window[axis], self.shift[axis]];
        match shift {
            0 => 0,
            _ if position < size - window => 0,
            _ if position < size - shift => 1,
            _ => 2,
        }
    }
}

impl Rule for WindowMask {
    fn output(&self) -> Shape {
        let [windows, positions] = self.counts();
        Shape::new(&[windows, 1, positions, positions])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn edges(&self, _: &[Shape]) -> Vec<Edge> {
        Edge::same(&[self.output()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pad_size` and `shift_size` of `torchvision.models.swin_transformer.shifted_window_attention` for a map of 8 and windows of 4.
    #[test]
    fn regions_are_those_of_swin() {
        let op = WindowMask { size: [8, 8], window: [4, 4], shift: [2, 0] };
        assert!(op.is_sound());
        assert_eq!((op.counts(), op.output().dims()), ([4, 16], &[4, 1, 16, 16][..]));
        let regions = |axis| (0..8).map(|position| op.region(axis, position)).collect::<Vec<_>>();
        assert_eq!(regions(0), [0, 0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(regions(1), [0; 8]);
        for changed in [
            WindowMask { size: [9, 8], ..op.clone() },
            WindowMask { window: [0, 4], ..op.clone() },
            WindowMask { shift: [4, 0], ..op.clone() },
            WindowMask { size: [0, 8], ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
