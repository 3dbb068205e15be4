//! Launches of updates with factored second moments, the means of rows and columns (Adafactor): `kernels/optimizer/factored.cu`.

use crate::calls::{Argument, Launch};
use crate::operations::context::Context;
use crate::operations::grid::{norm_real, small};
use crate::operations::optimizer::{
    FEW, NONE, READERS, Work, descending, distances, following, is_grouped, is_prepared, most, own, spread, values,
};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::program::{Action, ChannelOrder, Operation, Slot, TensorId};
use gpumem_core::train::optim::{Sums, scratch};

/// Threads of a block.
const THREADS: u64 = 256;
/// Pointers of a launch.
const POINTERS: usize = 7;
/// The most threads that work on a column in a strip. With more, neighbouring threads would read fewer adjacent elements.
const OF_COLUMN: u64 = 8;

const MISSING: Error = Error::Damaged("an update lacks a tensor");

/// The sizes of a parameter for its kernels: `[outer, height, width, inner]`.
#[derive(Clone, Copy)]
struct Sizes {
    outer: u64,
    height: u64,
    width: u64,
    inner: u64,
    is_vector: bool,
}

impl Sizes {
    fn new(context: &Context<'_>, parameter: TensorId) -> Result<Sizes, Error> {
        let tensor = context.tensor(parameter);
        if tensor.layout.pitch != 0 {
            return Err(crate::operations::context::other_layout());
        }
        let inner = match (tensor.layout.order, tensor.shape.dims()) {
            (ChannelOrder::ChannelsLast, &[_, channels, _, _]) => channels,
            _ => 1,
        };
        let elements = tensor.shape.elements().filter(|&elements| elements > 0);
        let elements = elements.ok_or(Error::Damaged("a parameter has no elements"))?;
        Ok(match *tensor.shape.dims() {
            [.., height, width] => {
                Sizes { outer: elements / height / width / inner, height, width, inner, is_vector: false }
            }
            _ => Sizes { outer: 1, height: elements, width: 1, inner: 1, is_vector: true },
        })
    }

    fn columns(self) -> u64 {
        self.outer * self.width * self.inner
    }

    /// Returns how many threads work on a row, on a column in a strip, and on a matrix's mean, as base-2 logarithms.
    fn lanes(self) -> [u32; 3] {
        // If rows are interleaved, one thread works on each row, and neighbouring threads read adjacent elements.
        let row = if self.inner > 1 { 1 } else { self.width };
        [row, self.height.min(OF_COLUMN), self.height].map(|count| count.clamp(1, THREADS).ilog2())
    }

    /// Returns the blocks that `count` items need, with 2 to the power of `lanes` threads for each item.
    fn blocks(count: u64, lanes: u32) -> u64 {
        count.div_ceil(THREADS >> lanes)
    }

    /// Returns the blocks of each launch but the last, in order.
    fn works(self) -> [Work; 5] {
        let [row, column, matrix] = self.lanes();
        let strips = self.height.div_ceil(Sums::STRIP);
        let rows = Sizes::blocks(self.outer * self.height * self.inner, row);
        let [columns, means] = if self.is_vector {
            [0; 2]
        } else {
            let of_strips = if strips > 1 { self.columns().div_ceil(THREADS) } else { 0 };
            let of_columns = Sizes::blocks(self.columns(), column).saturating_mul(strips);
            [of_columns, of_strips + Sizes::blocks(self.outer * self.inner, matrix)]
        };
        let work = |blocks| Work { blocks, missing: 0 };
        [work(rows), work(columns), work(means), self.pieces(), work(1)]
    }

    /// Returns the blocks that work on the elements in packs.
    fn pieces(self) -> Work {
        Work::of_elements(self.outer * self.height * self.width * self.inner)
    }
}

/// Fuses the updates from the first one on, as many as the launches take. If they are the step's last and have few blocks, the end of the step is
/// fused too. Returns the number of operations and their launches.
pub(in crate::operations) fn updates(
    context: &Context<'_>,
    rest: &[Operation],
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let count = following(rest, &Action::Update).min(most(POINTERS, fields(context)));
    if rest.get(count).is_some_and(|next| next.action == Action::Advance) {
        let launches = launches(context, &rest[..count], true)?;
        if launches.last().is_some_and(|last| last.grid[0] <= READERS) {
            return Ok(Some((count + 1, launches)));
        }
    }
    Ok(Some((count, launches(context, &rest[..count], false)?)))
}

fn is_mixed(context: &Context<'_>) -> bool {
    matches!(context.setting.precision, Precision::Mixed(_))
}

/// Returns the words of each parameter: `Field` of `factored.cu`, and those of parameter groups.
fn fields(context: &Context<'_>) -> usize {
    11 + usize::from(is_mixed(context)) + 2 * usize::from(is_grouped(context))
}

/// Returns how many numbers of an update's scratch memory belong to updates before it.
fn before(context: &Context<'_>, update: &Operation) -> Result<u32, Error> {
    let program = &context.placed.program;
    let memory = update.written(Slot::Workspace).ok_or(MISSING)?;
    let shares = |it: &&Operation| it.action == Action::Update && it.written(Slot::Workspace) == Some(memory);
    let earlier = program.operations.iter().take_while(|it| *it != update).filter(shares);
    let needed = |it: &Operation| it.written(Slot::Parameter).map_or(0, |id| own_scratch(context, id));
    let numbers = earlier.map(needed).fold(0, u64::saturating_add);
    let own = update.written(Slot::Parameter).map_or(0, |id| own_scratch(context, id));
    if numbers.saturating_add(own) > context.elements(memory) {
        return Err(Error::Damaged("updates have less scratch memory than they need"));
    }
    small(numbers)
}

fn own_scratch(context: &Context<'_>, parameter: TensorId) -> u64 {
    scratch(context.placed.program.moments, context.tensor(parameter).shape, false)
}

/// Returns the launches of updates. If `ends`, the last launch also ends the step.
pub(in crate::operations) fn launches(
    context: &Context<'_>,
    updates: &[Operation],
    ends: bool,
) -> Result<Vec<Launch>, Error> {
    let all = |find: &dyn Fn(&Operation) -> Option<TensorId>| updates.iter().map(find).collect::<Vec<_>>();
    let parameters = all(&|update| update.written(Slot::Parameter));
    let gradients = all(&|update| update.read(Slot::ParameterGradient));
    let [rows, columns] = [0, 1].map(|moment| all(&|update| update.written(Slot::Moment(moment))));
    let ids = parameters.iter().copied().collect::<Option<Vec<TensorId>>>().ok_or(MISSING)?;
    let sizes = ids.iter().map(|&id| Sizes::new(context, id)).collect::<Result<Vec<Sizes>, Error>>()?;
    let lacks_columns = sizes.iter().zip(&columns).any(|(sizes, columns)| columns.is_none() != sizes.is_vector);
    if gradients.iter().chain(&rows).any(Option::is_none) || lacks_columns {
        return Err(MISSING);
    }
    is_prepared(context)?;
    let (placed, mixed) = (context.placed, is_mixed(context));
    let master = |&id: &TensorId| placed.masters[id as usize].map(|_| placed.program.tensors.len() as Argument + id);
    let masters: Vec<Option<Argument>> = ids.iter().map(|id| master(id).filter(|_| mixed)).collect();
    let (weights, of_weights) = distances(placed, &parameters, 0)?;
    let (copies, of_copies) = distances(placed, &masters, NONE)?;
    let (gradients, of_gradients) = distances(placed, &gradients, 0)?;
    let (rows, of_rows) = distances(placed, &rows, 0)?;
    let (columns, of_columns) = distances(placed, &columns, NONE)?;
    let of_scratch = updates.iter().map(|update| before(context, update)).collect::<Result<Vec<u32>, Error>>()?;
    let size = |of: fn(&Sizes) -> u64| sizes.iter().map(|it| small(of(it))).collect::<Result<Vec<u32>, Error>>();
    let lanes = |it: &Sizes| it.lanes().iter().rev().fold(0, |all, lanes| all << 8 | lanes);
    let mut fields = vec![of_weights, of_gradients, of_rows, of_columns, of_scratch];
    fields.extend([size(|it| it.outer)?, size(|it| it.height)?, size(|it| it.width)?, size(|it| it.inner)?]);
    fields.push(sizes.iter().map(lanes).collect());
    fields.extend(mixed.then_some(of_copies));
    if is_grouped(context) {
        fields.extend(own(context, &ids));
    }
    let scratch = updates.first().and_then(|update| update.written(Slot::Workspace));
    let arguments = vec![weights, copies, gradients, rows, columns, scratch, Some(context.read(Slot::State)?)];
    let limit = if ids.len() <= FEW { FEW } else { most(POINTERS, fields.len() + 1) };
    let launch = |entry, works: &[Work]| {
        let kernel = context.kernel("factored.cu", entry).with("FIELDS", fields.len() + 1).with("MOST", limit);
        let kernel = kernel.with("MIXED", u8::from(mixed)).with("MOMENT_REAL", norm_real(context));
        let kernel =
            kernel.with("VALUES", values(context.setting.optimizer)).with("STRIP", format!("{}u", Sums::STRIP));
        let kernel = if is_grouped(context) { kernel.with("GROUPS", 1) } else { kernel };
        spread(descending(kernel, context), limit, works, (&fields, &[]), arguments.clone())
    };
    const ENTRIES: [&str; 5] =
        ["factored_rows", "factored_columns", "factored_means", "factored_squares", "factored_totals"];
    let mut launches = Vec::new();
    for (index, entry) in ENTRIES.into_iter().enumerate() {
        let works: Vec<Work> = sizes.iter().map(|it| it.works()[index]).collect();
        if works.iter().any(|work| work.blocks > 0) {
            launches.push(launch(entry, &works)?);
        }
    }
    let mut last = launch("factored_update", &sizes.iter().map(|it| it.pieces()).collect::<Vec<_>>())?;
    last.numbers[1] = u32::from(ends);
    launches.push(last);
    Ok(launches)
}
