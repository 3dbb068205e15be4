//! Convolutions as implicit matrix products: `kernels/conv2d.cu`, `kernels/correlation.cuh`.

use super::Context;
use super::linear::{small, tile};
use crate::launch::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::layers::Conv2d;
use gpumem_core::program::{Slot, TensorId};

/// What `correlation.cuh` computes: windows that slide over images and have a position each.
pub(super) struct Correlation {
    /// The kernel file that is compiled with these sizes.
    pub(super) file: &'static str,
    pub(super) batch: u64,
    pub(super) groups: u64,
    /// Image channels of a group.
    pub(super) images: u64,
    /// Position channels of a group.
    pub(super) positions: u64,
    pub(super) image: [u64; 2],
    pub(super) position: [u64; 2],
    pub(super) kernel: [u64; 2],
    pub(super) stride: [u64; 2],
    pub(super) padding: [u64; 2],
    pub(super) dilation: [u64; 2],
}

fn area(size: [u64; 2]) -> u64 {
    size[0].saturating_mul(size[1])
}

fn too_large() -> Error {
    Error::Unsupported { device: "CUDA", what: "a convolution whose sample or kernel has 2^28 elements or more".into() }
}

/// The shape of a launch: tile, blocks along x, y, z and threads.
struct Shape {
    tile: [u64; 2],
    grid: [u64; 3],
    threads: u32,
}

impl Correlation {
    /// The same if the kernels can count in it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] otherwise; [`Error::Damaged`] if there are no groups.
    pub(super) fn checked(self) -> Result<Correlation, Error> {
        if self.groups == 0 || self.images == 0 || self.positions == 0 {
            return Err(Error::Damaged("a convolution's groups do not divide its channels"));
        }
        let both = |channels: u64| channels.saturating_mul(self.groups);
        let padded = |axis: usize| self.image[axis].saturating_add(self.padding[axis].saturating_mul(2));
        let counts = [
            both(self.images).saturating_mul(area(self.image)),
            both(self.positions).saturating_mul(area(self.position)),
            both(self.positions).saturating_mul(self.filter()),
            area([padded(0), padded(1)]),
            area([self.kernel[0], self.dilation[0]]),
            area([self.kernel[1], self.dilation[1]]),
            self.stride[0],
            self.stride[1],
        ];
        if counts.iter().any(|&count| count >= 1 << 28) {
            return Err(too_large());
        }
        small(self.batch.saturating_mul(area(self.image).max(area(self.position))))?;
        Ok(self)
    }

    /// Elements of the weight of an output channel.
    fn filter(&self) -> u64 {
        self.images.saturating_mul(area(self.kernel))
    }

    /// Whether the kernels sum element by element instead of in tiles.
    fn is_direct(&self) -> bool {
        self.images == 1
    }

    /// The kernel with all its constants.
    fn constants(&self, kernel: Kernel, pass: &'static str, bias: bool, add: u8, tile: [u64; 2]) -> Kernel {
        let kernel = kernel.with("BATCH", self.batch).with("GROUPS", self.groups);
        let kernel = kernel.with("IMAGE_CHANNELS", self.images).with("POSITION_CHANNELS", self.positions);
        let kernel = kernel.with("IMAGE_HEIGHT", self.image[0]).with("IMAGE_WIDTH", self.image[1]);
        let kernel = kernel.with("POSITION_HEIGHT", self.position[0]).with("POSITION_WIDTH", self.position[1]);
        let kernel = kernel.with("KERNEL_HEIGHT", self.kernel[0]).with("KERNEL_WIDTH", self.kernel[1]);
        let kernel = kernel.with("STRIDE_Y", self.stride[0]).with("STRIDE_X", self.stride[1]);
        let kernel = kernel.with("PADDING_Y", self.padding[0]).with("PADDING_X", self.padding[1]);
        let kernel = kernel.with("DILATION_Y", self.dilation[0]).with("DILATION_X", self.dilation[1]);
        let kernel = kernel.with("BIAS", u8::from(bias)).with("ADD", add).with("PASS", pass);
        kernel.with("TILE_M", tile[0]).with("TILE_N", tile[1])
    }

    fn tiled(&self, rows: u64, columns: u64, largest: u64) -> Shape {
        let tile = tile(rows, columns, self.groups, largest);
        Shape { tile, grid: [columns.div_ceil(tile[1]), rows.div_ceil(tile[0]), self.groups], threads: 256 }
    }

    /// A thread for each of `count` elements.
    fn each(&self, count: u64) -> Shape {
        Shape { tile: [32, 32], grid: [count.div_ceil(256), 1, 1], threads: 256 }
    }

    #[allow(clippy::too_many_arguments)]
    fn launch(
        &self,
        context: &Context<'_>,
        entry: &'static str,
        pass: &'static str,
        shape: &Shape,
        bias: bool,
        add: u8,
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Launch, Error> {
        let kernel = self.constants(context.product_kernel(self.file, entry), pass, bias, add, shape.tile);
        let [x, y, z] = shape.grid;
        if y > 65535 || z > 65535 {
            return Err(too_large());
        }
        Ok(Launch { kernel, grid: [small(x)?, small(y)?, small(z)?], block: [shape.threads, 1, 1], arguments })
    }

    /// Positions from `images` and the weight.
    pub(super) fn gather(
        &self,
        context: &Context<'_>,
        entry: &'static str,
        images: TensorId,
        bias: Option<TensorId>,
        (positions, add): (TensorId, u8),
    ) -> Result<Launch, Error> {
        let columns = self.batch * area(self.position);
        let shape = if self.is_direct() {
            self.each(columns * self.groups * self.positions)
        } else {
            self.tiled(self.positions, columns, 128)
        };
        let arguments = self.operands(context, images, bias, positions)?;
        self.launch(context, entry, "GATHER", &shape, bias.is_some(), add, arguments)
    }

    /// Images from `positions` and the weight.
    pub(super) fn scatter(
        &self,
        context: &Context<'_>,
        entry: &'static str,
        positions: TensorId,
        bias: Option<TensorId>,
        (images, add): (TensorId, u8),
    ) -> Result<Launch, Error> {
        let columns = self.batch * area(self.image);
        let shape =
            if self.is_direct() { self.each(columns * self.groups) } else { self.tiled(self.images, columns, 128) };
        let arguments = self.operands(context, positions, bias, images)?;
        self.launch(context, entry, "SCATTER", &shape, bias.is_some(), add, arguments)
    }

    /// A forward pass has a parameter for the bias, a backward pass has none.
    fn operands(
        &self,
        context: &Context<'_>,
        from: TensorId,
        bias: Option<TensorId>,
        to: TensorId,
    ) -> Result<Vec<Option<TensorId>>, Error> {
        let weight = context.read(Slot::Parameter(0))?;
        let forward = context.operation.written(Slot::Output).is_some();
        Ok(if forward {
            vec![Some(from), Some(weight), bias, Some(to)]
        } else {
            vec![Some(from), Some(weight), Some(to)]
        })
    }

    /// The gradients of weight and bias that the operation writes.
    pub(super) fn parameters(
        &self,
        context: &Context<'_>,
        [filter, bias]: [&'static str; 2],
        bias_blocks: u64,
    ) -> Result<Vec<Launch>, Error> {
        let dy = context.read(Slot::Gradient)?;
        let mut launches = Vec::new();
        if let Some(dw) = context.operation.written(Slot::ParameterGradient(0)) {
            let shape = if self.is_direct() {
                let grid = [self.groups * self.positions, self.kernel[0], 1];
                Shape { tile: [32, 32], grid, threads: 256 }
            } else {
                // Sums are held twice.
                self.tiled(self.positions, self.filter(), 64)
            };
            let arguments = vec![Some(context.read(Slot::Input(0))?), Some(dy), Some(dw)];
            let add = context.adds(Slot::ParameterGradient(0));
            launches.push(self.launch(context, filter, "WEIGH", &shape, false, add, arguments)?);
        }
        if let Some(db) = context.operation.written(Slot::ParameterGradient(1)) {
            let shape = Shape { tile: [32, 32], grid: [bias_blocks, 1, 1], threads: 512 };
            let add = context.adds(Slot::ParameterGradient(1));
            let arguments = vec![Some(dy), Some(db)];
            launches.push(self.launch(context, bias, "CHANNEL_SUMS", &shape, false, add, arguments)?);
        }
        Ok(launches)
    }
}

fn correlation(layer: &Conv2d, batch: u64) -> Result<Correlation, Error> {
    let of_group = |channels: u64| channels.checked_div(layer.groups).unwrap_or(0);
    let correlation = Correlation {
        file: "conv2d.cu",
        batch,
        groups: layer.groups,
        images: of_group(layer.in_channels),
        positions: of_group(layer.out_channels),
        image: layer.input,
        position: layer.output,
        kernel: layer.kernel_size,
        stride: layer.stride,
        padding: layer.padding,
        dilation: layer.dilation,
    };
    correlation.checked()
}

pub(super) fn forward(context: &Context<'_>, layer: &Conv2d) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let bias = if layer.bias { Some(context.read(Slot::Parameter(1))?) } else { None };
    let correlation = correlation(layer, context.samples(y))?;
    Ok(vec![correlation.gather(context, "conv2d_forward", x, bias, (y, 0))?])
}

pub(super) fn backward(context: &Context<'_>, layer: &Conv2d) -> Result<Vec<Launch>, Error> {
    let dy = context.read(Slot::Gradient)?;
    let correlation = correlation(layer, context.samples(dy))?;
    let entries = ["conv2d_backward_filter", "conv2d_backward_bias"];
    let mut launches = correlation.parameters(context, entries, layer.out_channels)?;
    if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
        let target = (dx, context.adds(Slot::InputGradient(0)));
        launches.push(correlation.scatter(context, "conv2d_backward_data", dy, None, target)?);
    }
    Ok(launches)
}
