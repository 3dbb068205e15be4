use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::{Distances, RelativeBias};
use alloc::format;

/// `RelativePositionBias(heads, size = (1, T))`: a learned number for each head and each distance between two steps. It is added to the
/// scores of attention, as the fourth branch of [`Attention`](super::Attention).
///
/// * Options: `size`, height and width of the window or map whose positions, row after row, are the steps; `absolute = false`: if true,
///   distances have no signs. Along one axis, distances may share `buckets`: the longer the distances, the more of them share one, and all
///   from `max_distance = 128` on share the last. With `bidirectional = true` half of the buckets are for later keys; otherwise all are for
///   earlier ones.
/// * Input tokens `[T]` or rows `[.., T, D]`; only the length matters. Output `[heads, T, T]`, one for the whole batch: rows are queries,
///   columns keys.
/// * Parameters: `weight` `[rows, heads]`, normal with mean 0 and deviation 0.02, where rows are
///   `(2 * height - 1) * (2 * width - 1)`, `height * width` with `absolute`, or `buckets`.
/// * Backward keeps nothing.
///
/// PyTorch: `weight[index].permute(2, 0, 1)` with the `relative_position_index` of `torchvision.models.swin_transformer`; with buckets,
/// `T5Attention.compute_bias` of `transformers.models.t5.modeling_t5`.
#[derive(Clone, Debug)]
pub struct RelativePositionBias {
    heads: u64,
    size: Option<[u64; 2]>,
    absolute: bool,
    buckets: Option<u64>,
    max_distance: u64,
    bidirectional: bool,
}

/// The largest number of buckets.
const MOST: u64 = 1024;

impl Layer for RelativePositionBias {
    const NAME: &'static str = "RelativePositionBias";

    fn read(from: &mut Arguments<'_>) -> RelativePositionBias {
        RelativePositionBias {
            heads: from.required("heads").positive(),
            size: from.option("size").positive_pair_if_any(),
            absolute: from.option("absolute").flag(false),
            buckets: from.option("buckets").positive_if_any(),
            max_distance: from.option("max_distance").positive(128),
            bidirectional: from.option("bidirectional").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].shape;
        let steps = match (shape.dims(), x[0].elements) {
            (&[steps], Elements::Indices) | (&[.., steps, _], Elements::Numbers) => steps,
            _ => {
                let text = format!("works on tokens or a sequence [.., T, D], but the previous layer produces {shape}");
                return Err(Mistake::new(text));
            }
        };
        let [mut height, mut width] = self.size.unwrap_or([1, steps]);
        if height.saturating_mul(width) != steps {
            let text = format!("has a window of {height} x {width} positions, but its input has {steps} steps");
            b.report(Mistake::of("size", text));
            [height, width] = [1, steps];
        }
        let side = if self.bidirectional { 4 } else { 2 };
        let distances = match self.buckets {
            None if self.absolute => Distances::Absolute,
            None => Distances::Signed,
            Some(buckets) => {
                if let Some(mistake) = self.wrong_buckets(buckets, height, side) {
                    return Err(mistake);
                }
                if self.bidirectional { Distances::Buckets } else { Distances::Earlier }
            }
        };
        let buckets = self.buckets.map_or([0; 2], |buckets| [buckets, self.max_distance]);
        let op = RelativeBias { heads: self.heads, size: [height, width], distances, buckets };
        if !op.is_sound() {
            return Err(Mistake::new(format!("has {height} x {width} positions; use no more than 2^20 along an axis")));
        }
        let table = b.parameter("weight", &[op.rows(), self.heads], Role::Weight, Init::Normal(0.02));
        b.op(op, &[table])
    }
}

impl RelativePositionBias {
    /// Returns the mistake in `buckets` for distances along one axis. `None` if there is none. The first `buckets / side` distances have a
    /// bucket each.
    fn wrong_buckets(&self, buckets: u64, height: u64, side: u64) -> Option<Mistake> {
        let exact = buckets / side;
        if height > 1 || self.absolute {
            let text = "has buckets, which are for distances along one axis, with their signs; leave out `buckets`, or `size` and `absolute`";
            return Some(Mistake::of("buckets", text));
        }
        if !buckets.is_multiple_of(side) || buckets > MOST {
            let text = format!("has buckets = {buckets}; use a multiple of {side} up to {MOST}");
            return Some(Mistake::of("buckets", text));
        }
        (self.max_distance <= exact || self.max_distance > 1 << 30).then(|| {
            let text = format!(
                "has max_distance = {}, but {exact} of its {buckets} buckets have one distance each; use more than {exact}, up to 2^30",
                self.max_distance
            );
            Mistake::of("max_distance", text)
        })
    }
}
