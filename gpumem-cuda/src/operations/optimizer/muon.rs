//! Launches of updates of matrices that are made orthogonal (Muon): `kernels/optimizer/muon.cu`.

use crate::calls::{Argument, Kernel, Launch, type_name};
use crate::operations::context::Context;
use crate::operations::grid::{norm_real, small};
use crate::operations::optimizer::{descending, is_prepared};
use gpumem_core::error::Error;
use gpumem_core::program::{Operation, Slot};
use gpumem_core::train::optim::{Iteration, Muon, Optimizer, matrix};

const FILE: &str = "muon.cu";
/// Rows and columns of a tile of a product.
const TILE: u64 = 64;

/// True if an update is that of a matrix. Valid only in a program whose optimizer has updates of matrices.
pub(in crate::operations) fn is_of_matrix(update: &Operation) -> bool {
    update.written(Slot::Moment(1)).is_none()
}

/// Offsets of the parts of the scratch memory, in elements.
struct Places {
    /// The matrix of the current iteration, and that of the next.
    x: [u32; 2],
    gram: u32,
    polynomial: u32,
    pieces: u32,
    norm: u32,
}

impl Places {
    fn new(Iteration { matrix, square, pieces, .. }: Iteration) -> Result<Places, Error> {
        let after = |matrices: u64, squares: u64| {
            matrix.saturating_mul(matrices).saturating_add(square.saturating_mul(squares))
        };
        Ok(Places {
            x: [0, small(after(1, 0))?],
            gram: small(after(2, 0))?,
            polynomial: small(after(2, 1))?,
            pieces: small(after(2, 2))?,
            norm: small(after(2, 2).saturating_add(pieces))?,
        })
    }
}

/// The update of a matrix, with its sizes and hyperparameters.
struct Update<'a> {
    context: &'a Context<'a>,
    muon: Muon,
    /// The factor of an update besides the learning rate.
    ratio: f64,
    /// The parameter group's factor of the learning rate, and its weight decay.
    own: (f64, f64),
    rows: u32,
    columns: u32,
    pieces: u32,
    places: Places,
    scratch: Argument,
    state: Argument,
}

fn bits(number: f64) -> u32 {
    (number as f32).to_bits()
}

/// Returns the launches of one update.
pub(in crate::operations) fn launches(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let Optimizer::Muon(muon) = context.setting.optimizer else {
        return Err(Error::Damaged("the update of a matrix by a rule that has none"));
    };
    let parameter = context.written(Slot::Parameter)?;
    let tensor = context.tensor(parameter);
    if tensor.layout.pitch != 0 {
        return Err(crate::operations::context::other_layout());
    }
    let (sizes, iteration) = (matrix(tensor.shape), Iteration::new(tensor.shape));
    let [rows, columns] = [small(sizes[0])?, small(sizes[1])?];
    is_prepared(context)?;
    let scratch = context.written(Slot::Workspace)?;
    if context.elements(scratch) < iteration.all() || rows == 0 || columns == 0 {
        return Err(Error::Damaged("an update has less scratch memory than it needs"));
    }
    let update = Update {
        context,
        muon,
        ratio: muon.squared_ratio(tensor.shape).sqrt(),
        own: context.setting.optimizer.own(&tensor.name),
        rows,
        columns,
        pieces: small(iteration.pieces)?,
        places: Places::new(iteration)?,
        scratch,
        state: context.read(Slot::State)?,
    };
    let mut launches = update.begin()?;
    let mut at = 0;
    for _ in 0..muon.ns_steps.min(99) {
        launches.extend(update.iterate(at)?);
        at = 1 - at;
    }
    launches.push(update.end(at)?);
    Ok(launches)
}

impl Update<'_> {
    fn kernel(&self, entry: &'static str) -> Result<Kernel, Error> {
        let weight = self.context.tensor(self.context.written(Slot::Parameter)?);
        let real = type_name(weight.role.format(self.context.setting.precision));
        let kernel = Kernel::new(FILE, entry).with("REAL", real).with("MOMENT_REAL", norm_real(self.context));
        Ok(descending(kernel, self.context))
    }

    fn is_tall(&self) -> bool {
        self.rows > self.columns
    }

    /// Returns a launch with the kernels' `Given`, where X is matrix number `at`.
    fn launch(
        &self,
        entry: &'static str,
        blocks: u32,
        arguments: &[Option<Argument>],
        at: usize,
    ) -> Result<Launch, Error> {
        let Update { muon, places, own: (factor, decay), .. } = self;
        let arguments = arguments.iter().copied().chain([Some(self.scratch), Some(self.state)]).collect();
        let numbers = vec![
            self.rows,
            self.columns,
            places.x[at],
            places.x[usize::from(self.is_tall())],
            places.pieces,
            places.norm,
            bits(muon.momentum),
            bits(1.0 - muon.momentum),
            u32::from(muon.nesterov),
            bits(muon.eps),
            bits(factor * decay),
            bits(factor * self.ratio),
        ];
        Ok(Launch { kernel: self.kernel(entry)?, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers })
    }

    fn begin(&self) -> Result<Vec<Launch>, Error> {
        let gradient = Some(self.context.read(Slot::ParameterGradient)?);
        let momentum = Some(self.context.written(Slot::Moment(0))?);
        Ok(vec![
            self.launch("muon_momentum", self.pieces, &[gradient, momentum], 0)?,
            self.launch("muon_norm", 1, &[], 0)?,
            self.launch("muon_begin", self.pieces, &[], 0)?,
        ])
    }

    /// Returns the launches of one Newton-Schulz iteration, from matrix number `at` to the other one.
    fn iterate(&self, at: usize) -> Result<[Launch; 3], Error> {
        let (a, b, c) = self.muon.ns_coefficients;
        let Places { x, gram, polynomial, .. } = self.places;
        let (side, length) = (self.rows.min(self.columns), self.rows.max(self.columns));
        Ok([
            self.product([side, side, length], [gram, x[at], x[at], gram], true, [1.0, 0.0])?,
            self.product([side; 3], [polynomial, gram, gram, gram], false, [c, b])?,
            self.product([side, length, side], [x[1 - at], polynomial, x[at], x[at]], false, [1.0, a])?,
        ])
    }

    fn product(&self, sizes: [u32; 3], places: [u32; 4], transposed: bool, factors: [f64; 2]) -> Result<Launch, Error> {
        let [tall, wide] = [sizes[0], sizes[1]].map(|size| u64::from(size).div_ceil(TILE));
        let numbers = [&sizes[..], &places, &[u32::from(transposed)], &factors.map(bits)].concat();
        let arguments = vec![Some(self.scratch), Some(self.state)];
        let (kernel, grid) = (self.kernel("muon_product")?, [small(tall.saturating_mul(wide))?, 1, 1]);
        Ok(Launch { kernel, grid, block: [256, 1, 1], arguments, numbers })
    }

    fn end(&self, at: usize) -> Result<Launch, Error> {
        let placed = self.context.placed;
        let parameter = self.context.written(Slot::Parameter)?;
        let copy = placed.masters[parameter as usize].map(|_| placed.program.tensors.len() as Argument + parameter);
        self.launch("muon_update", self.pieces, &[Some(parameter), copy], at)
    }
}
