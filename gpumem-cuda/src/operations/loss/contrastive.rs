//! Launches of losses that compare all vectors of a batch: `kernels/loss/contrastive.cu`.

use crate::calls::{Kernel, Launch, type_name};
use crate::operations::context::Context;
use crate::operations::loss::{gradient, kernel};
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Measure, Slot, TensorId};

/// Threads of a block: those of a tile of a product.
const THREADS: u32 = 256;

/// The most tiles of a row of a gradient that fit in a block's registers.
const CHUNKS: u64 = 4;

/// A learned number and its gradient. `add` is 1 if that is added to its tensor.
struct Learned {
    value: TensorId,
    gradient: Option<TensorId>,
    add: u8,
}

impl Learned {
    fn new(context: &Context<'_>, input: Option<u8>) -> Result<Option<Learned>, Error> {
        let Some(number) = input else { return Ok(None) };
        let slot = Slot::InputGradient(number);
        let (value, gradient) = (context.read(Slot::Input(number))?, context.operation.written(slot));
        Ok(Some(Learned { value, gradient, add: context.adds(slot) }))
    }
}

/// Adds the constants of a number to a kernel: its value, or the tensor's format if it is learned.
fn with_number(
    kernel: Kernel,
    context: &Context<'_>,
    [name, real, add]: [&'static str; 3],
    (constant, learned): (f64, Option<&Learned>),
) -> Kernel {
    let kernel = kernel.with_float(name, constant);
    let Some(Learned { value, gradient, add: adds }) = learned else { return kernel };
    let kernel = kernel.with(real, type_name(context.tensor(*value).role.format(context.setting.precision)));
    if gradient.is_some() { kernel.with(add, adds) } else { kernel }
}

/// Returns all launches except the one that sums the terms. There are [two terms](terms) for each sample.
pub(in crate::operations) fn launches(context: &Context<'_>, criterion: &Criterion) -> Result<Vec<Launch>, Error> {
    let (samples, length) = (context.setting.batch, criterion.classes);
    let small = |size: u64| {
        let what = "a loss of a batch of 2^30 samples or more, or of vectors as long".into();
        let limit = 1 << 30;
        u32::try_from(size).ok().filter(|&size| size < limit).ok_or(Error::Unsupported { device: "CUDA", what })
    };
    small(samples)?;
    small(length)?;
    let tile = if samples > 32 { 64 } else { 32 };
    let chunks = length.div_ceil(tile).min(CHUNKS);
    let [x, y] = [context.read(Slot::Input(0))?, context.read(Slot::Input(1))?];
    let [(dx, add_x), (dy, add_y)] = [gradient(context, 0)?, gradient(context, 1)?];
    if [(x, dx), (y, dy)].iter().any(|(value, gradient)| *gradient == Some(*value)) {
        return Err(Error::Damaged("the gradient of a loss of a batch overwrites what others are compared with"));
    }
    let scale = Learned::new(context, criterion.scale_input())?;
    let bias = Learned::new(context, criterion.bias_input())?;
    let value = |number: &Option<Learned>| number.as_ref().map(|number| number.value);
    let slope = |number: &Option<Learned>| number.as_ref().and_then(|number| number.gradient);
    let terms = context.written(Slot::Workspace)?;
    let logarithms = match &*criterion.saved() {
        [] => None,
        _ => Some(context.written(criterion.own_saved())?),
    };
    let state = context.placed.program.state();
    // Gradients of learned numbers come from the rows of both sides.
    let has_numbers = slope(&scale).or(slope(&bias)).is_some();
    let sides = [dx.is_some() || has_numbers, dy.is_some() || has_numbers];
    let of_loss = |entry: &'static str| {
        let kernel = kernel(context, criterion, "contrastive.cu", entry)
            .with("TENSOR_CORES", context.tensor_core_terms())
            .with("SAMPLES", samples)
            .with("LENGTH", length)
            .with("LOSS", criterion.kind.name())
            .with("TILE_M", tile)
            .with("TILE_N", tile)
            .with("ADD", 0)
            .with("CHUNKS", chunks)
            .with("FIRST_SIDE", u8::from(!sides[0]))
            .with("GRADIENT_X", u8::from(dx.is_some()))
            .with("GRADIENT_Y", u8::from(dy.is_some()))
            .with("ADD_X", add_x)
            .with("ADD_Y", add_y);
        let names = ["SCALE", "SCALE_REAL", "ADD_SCALE"];
        let kernel = with_number(kernel, context, names, (1.0 / criterion.number(), scale.as_ref()));
        let second = if criterion.kind == Measure::Siglip { criterion.second() } else { 0.0 };
        with_number(kernel, context, ["BIAS", "BIAS_REAL", "ADD_BIAS"], (second, bias.as_ref()))
    };
    let tiles = small(samples.div_ceil(tile))?;
    let launch = |entry, grid, arguments| {
        let kernel = of_loss(entry);
        Launch { kernel, grid, block: [THREADS, 1, 1], arguments, numbers: Vec::new() }
    };
    let numbers = [value(&scale), value(&bias)];
    let arguments = vec![Some(x), Some(y), numbers[0], numbers[1], Some(terms), logarithms];
    let mut launches = vec![launch("contrastive_terms", [2 * tiles, 1, 1], arguments)];
    let wanted = sides.iter().filter(|side| **side).count() as u32;
    if wanted > 0 {
        let across = if dx.or(dy).is_some() { small(length.div_ceil(tile * chunks))? } else { 1 };
        let arguments = vec![Some(x), Some(y), numbers[0], numbers[1], logarithms, state, dx, dy, Some(terms)];
        launches.push(launch("contrastive_gradients", [wanted * tiles, across, 1], arguments));
    }
    if has_numbers {
        let arguments = vec![Some(terms), state, slope(&scale), slope(&bias)];
        launches.push(launch("contrastive_numbers", [1, 1, 1], arguments));
    }
    Ok(launches)
}

/// Returns the number of terms that are summed: one for each vector of both sides.
pub(in crate::operations) fn terms(context: &Context<'_>) -> u64 {
    context.setting.batch.saturating_mul(2)
}
