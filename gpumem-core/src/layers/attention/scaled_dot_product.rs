use super::causal_attention::checked_kv_heads;
use super::check_heads;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{self, Seen, usual_scale};
use crate::shape::{Shape, product};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// `Attention(q, k, v, heads = 1, causal = false, dropout = 0.0, scale = 1 / sqrt(S), kv_heads = heads)`: scaled dot-product attention of
/// three branches. Keys and values may come from another sequence than queries.
///
/// * Options: `heads = 1`, into which rows are split; `kv_heads = heads`, a divisor of `heads`: the heads of keys and values, which
///   neighbouring heads of queries share; `causal = false`: if true, a time step sees only steps up to its own index; `dropout = 0.0`, the
///   probability that an attention weight is set to 0 in training; `scale`, above 0; `window`: a time step sees only keys that are less
///   than `window` steps away.
/// * Every branch gets the layer's input. Queries `[.., T, heads * S]`, keys `[.., M, kv_heads * S]` and values `[.., M, kv_heads * V]`
///   agree in the first axes, along which sequences do not see each other. The output is `[.., T, heads * V]`: in each head
///   `softmax(scale * q k^T) v`.
/// * With one branch, queries, keys and values are side by side, `[.., T, (heads + 2 * kv_heads) * S]`. The output of one `Linear` then
///   needs no copies.
/// * One more branch, a second or a fourth one, is added to the scaled products of queries and keys, as `mask` in
///   `Attention(q, k, v, mask)`: `[T, M]`, or `[.., heads, T, M]`. Axes before `T` are broadcast as numpy does; with one head, its axis may
///   be left out. A row `[M]`, `[1, M]` or `[.., heads, 1, M]` is repeated over the queries without a tensor of T x M. It may differ
///   between samples, or be shared. Adding -infinity hides a key. A query that sees no key has an output of 0 and gradients of 0.
/// * Parameters: none.
/// * Backward keeps the branches' outputs, the output and one f32 a row and head, the logarithm of the softmax's denominator. No T x M
///   tensor is ever in memory, except the added branch.
///
/// PyTorch: `torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, dropout, causal, scale=scale, enable_gqa=True)`.
#[derive(Clone, Debug)]
pub struct Attention {
    heads: u64,
    kv_heads: Option<u64>,
    causal: bool,
    dropout: f64,
    scale: Option<f64>,
    window: Option<u64>,
}

impl Layer for Attention {
    const NAME: &'static str = "Attention";
    const INPUTS: (usize, usize) = (1, 4);

    fn read(from: &mut Arguments<'_>) -> Attention {
        Attention {
            heads: from.option("heads").positive(1),
            kv_heads: from.option("kv_heads").integer(),
            causal: from.option("causal").flag(false),
            dropout: from.option("dropout").probability(0.0),
            scale: from.option("scale").number_above_if_any(0.0),
            window: from.option("window").positive_if_any(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let Attention { heads, causal, dropout, .. } = *self;
        let kv_heads = checked_kv_heads(b, heads, self.kv_heads);
        let (parts, added) = x.split_at(if x.len() < 3 { 1 } else { 3 });
        let apart = parts.len() == 3;
        let Sizes { axes, steps, keys, width, values } =
            if apart { sizes_apart(parts, heads, kv_heads)? } else { sizes_joined(parts, heads, kv_heads)? };
        let (bias, bias_rows) = match added {
            [added, ..] => bias(added, parts.len(), axes, heads, [steps, keys])?,
            [] => ([0; 2], 0),
        };
        let dims: Vec<u64> = axes.iter().copied().chain([steps, heads.saturating_mul(values)]).collect();
        let (scale, window, shape) = (self.scale.unwrap_or_else(|| usual_scale(width)), 0, Shape::new(&dims));
        let op = ops::Attention {
            heads,
            kv_heads,
            keys,
            width,
            values,
            scale,
            dropout,
            causal,
            window,
            apart,
            bias,
            shape,
            bias_rows,
            seen: Seen::All,
        };
        let op = op.within(self.window.unwrap_or(0));
        if op.window > 0 && steps >= keys.saturating_add(op.window) {
            let text = format!(
                "has a window of {} keys, but of its {steps} queries the last see none of {keys} keys; use more than {}",
                op.window,
                steps - keys
            );
            return Err(Mistake::of("window", text));
        }
        let inputs = b.apart(x, parts.len())?;
        b.op(op, &inputs)
    }
}

/// The sizes of queries, keys and values.
struct Sizes<'a> {
    /// The axes before the steps.
    axes: &'a [u64],
    steps: u64,
    keys: u64,
    /// Elements of a head of queries and keys, and of one of values.
    width: u64,
    values: u64,
}

/// Returns the sizes of one branch with queries, keys and values side by side.
fn sizes_joined(x: &[Value], heads: u64, kv_heads: u64) -> Result<Sizes<'_>, Mistake> {
    let Sequences { axes, steps, features } = sequences(x, 0)?;
    let parts = kv_heads.saturating_mul(2).saturating_add(heads);
    if !features.is_multiple_of(parts) {
        let text = format!(
            "takes queries, keys and values side by side, but a width of {features} is no multiple of {heads} heads of queries \
             and twice {kv_heads} of keys and values; use three branches, or a width that is a multiple of {parts}"
        );
        return Err(Mistake::new(text));
    }
    let width = features / parts;
    Ok(Sizes { axes, steps, keys: steps, width, values: width })
}

/// Returns the sizes of three branches.
fn sizes_apart(x: &[Value], heads: u64, kv_heads: u64) -> Result<Sizes<'_>, Mistake> {
    let [q, k, v] = [sequences(x, 0)?, sequences(x, 1)?, sequences(x, 2)?];
    check_heads(heads, q.features)?;
    let width = q.features / heads;
    if k.axes != q.axes || k.features != width.saturating_mul(kv_heads) {
        let features = width.saturating_mul(kv_heads);
        let keys = list(q.axes, &format!("M, {features}"));
        let heads = if kv_heads == 1 { format!("a head of {width}") } else { format!("{kv_heads} heads of {width}") };
        let [queries, other] = [x[0].shape, x[1].shape];
        let text = format!("needs keys {keys}, {heads}, for queries {queries}, but branch 1 produces {other}");
        return Err(Mistake::of_input(1, text));
    }
    if v.axes != k.axes || v.steps != k.steps || !v.features.is_multiple_of(kv_heads) {
        let rest = if kv_heads == 1 { "V".into() } else { format!("{kv_heads} * V") };
        let values = list(k.axes, &format!("{}, {rest}", k.steps));
        let [keys, other] = [x[1].shape, x[2].shape];
        let text = format!("needs values {values} for keys {keys}, but branch 2 produces {other}");
        return Err(Mistake::of_input(2, text));
    }
    Ok(Sizes { axes: q.axes, steps: q.steps, keys: k.steps, width, values: v.features / kv_heads })
}

/// The rows of a branch.
struct Sequences<'a> {
    axes: &'a [u64],
    steps: u64,
    features: u64,
}

fn sequences(x: &[Value], branch: usize) -> Result<Sequences<'_>, Mistake> {
    let value = &x[branch];
    let names = ["queries", "keys", "values"];
    if let Some([given, remedy]) = value.elements.no_numbers() {
        let text = format!("works on numbers, but branch {branch} carries {given}; put `{remedy}` in that branch");
        return Err(Mistake::of_input(branch, text));
    }
    match value.shape.dims() {
        [axes @ .., steps, features] => Ok(Sequences { axes, steps: *steps, features: *features }),
        _ => {
            let text = format!("works on {} [.., T, D], but branch {branch} produces {}", names[branch], value.shape);
            Err(Mistake::of_input(branch, text))
        }
    }
}

/// Returns a shape as text. `rest` are its last axes in words.
fn list(axes: &[u64], rest: &str) -> String {
    let axes: String = axes.iter().map(|axis| format!("{axis}, ")).collect();
    format!("[{axes}{rest}]")
}

/// Returns `([matrices, heads], rows)` of the numbers that are added to the scores, or the mistake in their shape.
///
/// `heads` consecutive heads share a matrix. `rows` is 1 if all queries share a row, else the number of queries.
fn bias(
    added: &Value,
    branch: usize,
    axes: &[u64],
    heads: u64,
    [steps, keys]: [u64; 2],
) -> Result<([u64; 2], u64), Mistake> {
    let all: Vec<u64> = if heads == 1 { axes.to_vec() } else { axes.iter().copied().chain([heads]).collect() };
    let mistake = || {
        let dims: Vec<u64> = all.iter().copied().chain([steps, keys]).collect();
        let text = format!(
            "adds [{keys}] or [{steps}, {keys}], or what is repeated to {}, but branch {branch} produces {}",
            Shape::new(&dims),
            added.shape
        );
        Mistake::of_input(branch, text)
    };
    if let Some([given, remedy]) = added.elements.no_numbers() {
        let text = format!("works on numbers, but branch {branch} carries {given}; put `{remedy}` in that branch");
        return Err(Mistake::of_input(branch, text));
    }
    let (front, rows, columns) = match added.shape.dims() {
        [front @ .., rows, columns] => (front, *rows, *columns),
        [columns] => (&[][..], 1, *columns),
        [] => return Err(mistake()),
    };
    // The axis of a single head may be written or left out.
    let front = match front {
        [front @ .., 1] if heads == 1 && front.len() == axes.len() => front,
        front => front,
    };
    if (rows != 1 && rows != steps) || columns != keys || front.len() > all.len() {
        return Err(mistake());
    }
    // First axes of length 1 count as missing. The remaining axes must be adjacent; along all axes before and after them values are
    // repeated.
    let missing = all.len() - front.len();
    let given = |axis: usize| axis.checked_sub(missing).map_or(1, |axis| front[axis]);
    let is_given = |axis: &usize| given(*axis) > 1;
    let first = (0..all.len()).find(is_given).unwrap_or(all.len());
    let end = (0..all.len()).rev().find(is_given).map_or(first, |last| last + 1);
    if (first..end).any(|axis| given(axis) != all[axis]) {
        return Err(mistake());
    }
    Ok(([product(&all[first..end]), product(&all[end..])], rows))
}
