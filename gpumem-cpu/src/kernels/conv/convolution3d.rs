//! 3-D convolution and its transpose, as sums of convolutions of planes over the depth of the kernel. A plane of positions meets as many planes of
//! images as the kernel is deep, each with its own plane of the kernel:
//!
//! ```text
//! gather   positions[:, o] = bias + sum over k of the gather of images[:, at(o, k)] through weight[k]
//! scatter  images[:, z]    = bias + sum over all (o, k) with at(o, k) = z of the scatter of positions[:, o] through weight[k]
//! weigh    weight[k]       = sum over o of what images[:, at(o, k)] and positions[:, o] weigh
//! ```
//!
//! The planes of one depth, of all samples and channels, are copied into contiguous memory, and so are the weights of one depth. [`Correlation`]
//! computes their products.

use crate::kernels::conv::correlation::{Correlation, channel_sums};
use crate::kernels::movement::window::Window;
use crate::kernels::{Bound, Frame, kernel};
use crate::operands::{Operands, count};
use crate::parallel::{self, grown};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{self, Convolution3d};
use rayon::prelude::*;

/// Volumes [planes of channels and samples, depth, area].
#[derive(Clone, Copy, Debug)]
struct Volumes {
    count: usize,
    depth: usize,
    area: usize,
}

impl Volumes {
    fn elements(&self) -> usize {
        self.count.saturating_mul(self.depth).saturating_mul(self.area)
    }

    /// Returns the elements of all planes of one depth.
    fn slice(&self) -> usize {
        self.count.saturating_mul(self.area)
    }

    /// Copies the planes at a depth into contiguous memory.
    fn take(&self, from: &[f32], depth: usize, planes: &mut [f32]) {
        let volumes = from.par_chunks(self.depth * self.area);
        planes.par_chunks_mut(self.area).zip(volumes).for_each(|(plane, volume)| {
            plane.copy_from_slice(&volume[depth * self.area..][..self.area]);
        });
    }

    /// Copies contiguous planes to a depth of the volumes, or adds them: the reverse of `take`.
    fn put(&self, planes: &[f32], depth: usize, to: &mut [f32], add: bool) {
        let volumes = to.par_chunks_mut(self.depth * self.area);
        planes.par_chunks(self.area).zip(volumes).for_each(|(plane, volume)| {
            let to = &mut volume[depth * self.area..][..self.area];
            if add { to.iter_mut().zip(plane).for_each(|(to, x)| *to += x) } else { to.copy_from_slice(plane) }
        });
    }
}

/// A window over volumes, with the products of its planes.
struct Volumetric {
    /// The window along the depth, over images of one column.
    depth: Window,
    planes: Correlation,
    images: Volumes,
    positions: Volumes,
    /// The planes of the kernel for each pair of channels.
    weight: Volumes,
}

impl Volumetric {
    /// Returns pairs of depths, of an image and of a kernel element, that meet at a position.
    fn met(&self, position: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let elements = 0..self.weight.depth;
        elements.filter_map(move |k| self.depth.coordinate(0, position, k).map(|image| (image, k)))
    }

    /// Copies each plane of the weight to a weight of its own.
    fn take_weight(&self, weight: &[f32], to: &mut [f32]) {
        for (depth, planes) in to.chunks_mut(self.weight.slice().max(1)).enumerate() {
            self.weight.take(weight, depth, planes);
        }
    }

    /// Gathers: see the [module](self).
    fn gather(
        &self,
        images: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        frame: &mut Frame<'_>,
    ) {
        let (plane, slice, filter) = (self.images.slice(), self.positions.slice(), self.weight.slice());
        let own = grown(frame.planes, plane + slice + self.weight.elements());
        let (image, rest) = own.split_at_mut(plane);
        let (position, weights) = rest.split_at_mut(slice);
        self.take_weight(weight, weights);
        for o in 0..self.positions.depth {
            let mut is_first = true;
            for (z, k) in self.met(o) {
                self.images.take(images, z, image);
                let bias = bias.filter(|_| is_first);
                self.planes.gather(image, &weights[k * filter..][..filter], bias, position, !is_first, frame.scratch);
                is_first = false;
            }
            if is_first {
                fill(position, bias, self.positions.area);
            }
            self.positions.put(position, o, out, add);
        }
    }

    /// Scatters: see the [module](self).
    fn scatter(
        &self,
        positions: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        frame: &mut Frame<'_>,
    ) {
        let (plane, slice, filter) = (self.images.slice(), self.positions.slice(), self.weight.slice());
        let own = grown(frame.planes, plane + slice + self.weight.elements());
        let (image, rest) = own.split_at_mut(plane);
        let (position, weights) = rest.split_at_mut(slice);
        self.take_weight(weight, weights);
        for z in 0..self.images.depth {
            let mut is_first = true;
            let positions_of =
                |k: usize| (0..self.positions.depth).find(|&o| self.depth.coordinate(0, o, k) == Some(z));
            for (o, k) in (0..self.weight.depth).filter_map(|k| Some((positions_of(k)?, k))) {
                self.positions.take(positions, o, position);
                let bias = bias.filter(|_| is_first);
                self.planes.scatter(position, &weights[k * filter..][..filter], bias, image, !is_first, frame.scratch);
                is_first = false;
            }
            if is_first {
                fill(image, bias, self.images.area);
            }
            self.images.put(image, z, out, add);
        }
    }

    /// Computes the gradient of the weight: see the [module](self).
    fn weigh(&self, images: &[f32], positions: &[f32], out: &mut [f32], add: bool, frame: &mut Frame<'_>) {
        let (plane, slice, filter) = (self.images.slice(), self.positions.slice(), self.weight.slice());
        let own = grown(frame.planes, plane + slice + self.weight.elements());
        let (image, rest) = own.split_at_mut(plane);
        let (position, weights) = rest.split_at_mut(slice);
        weights.fill(0.0);
        for o in 0..self.positions.depth {
            self.positions.take(positions, o, position);
            for (z, k) in self.met(o) {
                self.images.take(images, z, image);
                self.planes.weigh(image, position, &mut weights[k * filter..][..filter], true, frame.scratch);
            }
        }
        for (k, weight) in weights.chunks(filter.max(1)).enumerate() {
            self.weight.put(weight, k, out, add);
        }
    }
}

/// Fills planes that no window meets with the bias, or with zeros.
fn fill(planes: &mut [f32], bias: Option<&[f32]>, area: usize) {
    let value = |plane: usize| bias.map_or(0.0, |bias| bias[plane % bias.len()]);
    planes.par_chunks_mut(area).enumerate().for_each(|(plane, to)| parallel::store(to, false, |_| value(plane)));
}

/// Checks the sizes of a convolution. The windows of a transposed one slide over the output, with a position for each element of the input.
fn resolve(op: &Convolution3d, batch: u64) -> Result<Volumetric, Error> {
    let [(images, image), (positions, position)] = op.sides();
    let groups = op.groups;
    if groups == 0 || [images, positions].iter().any(|channels| channels % groups != 0) {
        return Err(Error::Damaged("a convolution's groups do not divide its channels"));
    }
    if [image, position].as_flattened().contains(&0) || images == 0 || positions == 0 {
        return Err(Error::Damaged("a convolution has no elements"));
    }
    let ops::Window { kernel_size, stride, padding, dilation } = op.window;
    let along = ops::Window {
        kernel_size: [kernel_size[0], 1],
        stride: [stride[0], 1],
        padding: [padding[0], 0],
        dilation: [dilation[0], 1],
    };
    let last = |[_, height, width]: [u64; 3]| [height, width];
    let across = ops::Window {
        kernel_size: last(kernel_size),
        stride: last(stride),
        padding: last(padding),
        dilation: last(dilation),
    };
    let depth = Window::new([[image[0], 1], [position[0], 1]], &along)?;
    let plane = Window::new([last(image), last(position)], &across)?;
    let volumes = |channels: u64, [depth, height, width]: [u64; 3]| Volumes {
        count: count(&[batch, channels]),
        depth: count(&[depth]),
        area: count(&[height, width]),
    };
    let of_group = [images, positions].map(|channels| (channels / groups) as usize);
    let weight = Volumes { count: count(&op.weight().dims()[..2]), depth: depth.kernel[0], area: plane.kernel_area() };
    let planes = Correlation::new(plane, groups as usize, of_group, count(&[batch]));
    Ok(Volumetric { depth, planes, images: volumes(images, image), positions: volumes(positions, position), weight })
}

/// Returns the elements of input, output, weight and bias.
fn lengths(op: &Convolution3d, volumetric: &Volumetric) -> [usize; 4] {
    let Volumetric { images, positions, weight, .. } = volumetric;
    let [input, output] = if op.transposed { [positions, images] } else { [images, positions] };
    [input.elements(), output.elements(), weight.elements(), count(&[op.out_channels])]
}

/// Computes `y` from `x`, the weight and the bias.
pub(in crate::kernels) fn forward(op: &Convolution3d, operands: &mut Operands<'_>) -> Bound {
    let volumetric = resolve(op, operands.batch())?;
    let [input, output, weight, bias] = lengths(op, &volumetric);
    let input = operands.source(Slot::Input(0), input)?;
    let weight = operands.source(Slot::Input(1), weight)?;
    let bias = operands.source_if(op.bias, Slot::Input(2), bias)?;
    let mut output = operands.target(Slot::Output, output)?;
    let transposed = op.transposed;
    kernel(move |frame| {
        let bias = bias.as_ref().map(|bias| bias.get());
        if transposed {
            volumetric.scatter(input.get(), weight.get(), bias, output.get(), false, frame);
        } else {
            volumetric.gather(input.get(), weight.get(), bias, output.get(), false, frame);
        }
    })
}

/// Computes the gradients that the operation writes.
pub(in crate::kernels) fn backward(op: &Convolution3d, operands: &mut Operands<'_>) -> Bound {
    let volumetric = resolve(op, operands.batch())?;
    let [input, output, weight, bias] = lengths(op, &volumetric);
    let gradient = operands.source(Slot::Gradient, output)?;
    let mut input_gradient = operands.gradient(Slot::InputGradient(0), input)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), weight)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), bias)?;
    let weight = operands.source_if(input_gradient.is_some(), Slot::Input(1), weight)?;
    let input = operands.source_if(weight_gradient.is_some(), Slot::Input(0), input)?;
    let (transposed, elements) = (op.transposed, count(&op.output));
    kernel(move |frame| {
        let dy = gradient.get();
        if let (Some(out), Some(weight)) = (&mut input_gradient, &weight) {
            let (dx, add) = (out.target.get(), out.accumulate);
            if transposed {
                volumetric.gather(dy, weight.get(), None, dx, add, frame);
            } else {
                volumetric.scatter(dy, weight.get(), None, dx, add, frame);
            }
        }
        if let (Some(out), Some(input)) = (&mut weight_gradient, &input) {
            let (images, positions) = if transposed { (dy, input.get()) } else { (input.get(), dy) };
            volumetric.weigh(images, positions, out.target.get(), out.accumulate, frame);
        }
        if let Some(out) = &mut bias_gradient {
            channel_sums(dy, elements, out.target.get(), out.accumulate);
        }
    })
}
