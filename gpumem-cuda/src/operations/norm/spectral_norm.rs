//! Launches of spectral norm, a weight divided by its largest singular value: `kernels/norm/spectral_norm.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::small;
use gpumem_core::error::Error;
use gpumem_core::program::ops::SpectralNorm;
use gpumem_core::program::{Slot, TensorId};

/// The operation whose launches are made.
struct Launches<'a> {
    context: &'a Context<'a>,
    op: &'a SpectralNorm,
    moves: bool,
}

impl<'a> Launches<'a> {
    fn new(context: &'a Context<'a>, op: &'a SpectralNorm, moves: bool) -> Result<Launches<'a>, Error> {
        match op.is_sound() {
            true => Ok(Launches { context, op, moves }),
            false => Err(Error::Damaged("a weight's rows are not all of it")),
        }
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let [outer, rows, inner] = self.op.sizes;
        let kernel = self.context.kernel("spectral_norm.cu", entry).with("OUTER", format!("{outer}ull"));
        let kernel = kernel.with("ROWS", format!("{rows}ull")).with("INNER", format!("{inner}ull"));
        let kernel = kernel.with_float("EPS", self.op.eps).with("MOVES", u8::from(self.moves));
        kernel.with("PARTS", self.op.parts()).with("ADD", self.context.adds(Slot::InputGradient(0)))
    }

    fn launch(
        &self,
        entry: &'static str,
        [blocks, threads]: [u64; 2],
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Launch, Error> {
        let (grid, block) = ([small(blocks)?, 1, 1], [threads as u32, 1, 1]);
        Ok(Launch { kernel: self.kernel(entry), grid, block, arguments, numbers: Vec::new() })
    }

    /// Returns the launch of `y = W * statistics[0]`.
    fn scale(&self, statistics: TensorId) -> Result<Launch, Error> {
        let (w, y) = (self.context.read(Slot::Input(0))?, self.context.written(Slot::Output)?);
        self.launch("spectral_scale", [self.elements().div_ceil(256), 256], vec![Some(w), Some(statistics), Some(y)])
    }

    fn elements(&self) -> u64 {
        self.op.rows().saturating_mul(self.op.columns())
    }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &SpectralNorm) -> Result<Vec<Launch>, Error> {
    let moves = context.operation.written(Slot::Buffer(0)).is_some();
    let launches = Launches::new(context, op, moves)?;
    if let Some(saved) = context.operation.read(Slot::Saved(0)) {
        return Ok(vec![launches.scale(saved)?]);
    }
    let (w, work) = (context.read(Slot::Input(0))?, context.written(Slot::Workspace)?);
    let [u, v] = [context.read(Slot::Buffer(0))?, context.read(Slot::Buffer(1))?];
    let saved = context.operation.written(Slot::Saved(0));
    let mut all = Vec::new();
    if moves {
        all.push(launches.launch("spectral_rows", [op.rows(), 256], vec![Some(w), Some(v), Some(work)])?);
        all.push(launches.launch("spectral_left", [1, 1024], vec![Some(work), Some(u)])?);
    }
    let columns = vec![Some(w), Some(u), Some(work)];
    all.push(launches.launch("spectral_columns", [op.columns().div_ceil(32), 256], columns)?);
    all.push(launches.launch("spectral_right", [1, 1024], vec![Some(work), Some(u), Some(v), saved])?);
    all.push(launches.scale(work)?);
    Ok(all)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &SpectralNorm) -> Result<Vec<Launch>, Error> {
    let launches = Launches::new(context, op, false)?;
    let (dy, w, saved) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Saved(0))?);
    let (partial, dw) = (context.written(Slot::Workspace)?, context.written(Slot::InputGradient(0))?);
    let product = launches.launch("spectral_product", [op.parts(), 256], vec![Some(dy), Some(w), Some(partial)])?;
    let arguments = vec![Some(dy), Some(saved), Some(partial), Some(dw)];
    let blocks = launches.elements().div_ceil(256);
    Ok(vec![product, launches.launch("spectral_backward", [blocks, 256], arguments)?])
}
