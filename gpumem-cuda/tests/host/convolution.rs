//! A convolution as its definition says, element by element: what cuDNN is asked for. It knows nothing of how the calls came
//! about, and computes every sum of products in f64 before it is rounded once.

use super::product::{Memory, load, store};
use gpumem_cuda::Argument;
use gpumem_cuda::convolution::{Convolution, Pass};
use gpumem_cuda::product::Element;

/// What the documentation demands of the operands, and that no output lies where something else is.
fn check(it: &Convolution, memory: &mut dyn Memory) {
    let Convolution { x, w, y, bias, workspace, .. } = *it;
    assert!(it.in_channels.is_multiple_of(it.groups) && it.out_channels.is_multiple_of(it.groups), "{it}");
    assert!(it.bias.is_some() || !it.relu, "{it}: the library has no Relu without a bias");
    let is_fused = it.pass == Pass::BackwardData && it.element != Element::F32;
    assert!(it.pass == Pass::Forward || is_fused || (it.bias.is_none() && !it.relu), "{it}: gradients have no bias");
    let may_add = it.bias.is_some() && it.pass == Pass::Forward && it.element != Element::F32;
    assert!(it.addend.is_none() || may_add, "{it}: the library adds a map behind a bias");
    assert!(it.bias.is_none() || !it.accumulate, "{it}: the library fuses no bias with an addition");
    for axis in 0..2 {
        let reach = it.dilation[axis] * (it.kernel[axis] - 1) + 1;
        let output = (it.input[axis] + 2 * it.padding[axis] - reach) / it.stride[axis] + 1;
        assert_eq!(output, it.output[axis], "{it}: size of the output");
    }
    let (written, mut others) = match it.pass {
        Pass::Forward => (y, vec![x, w]),
        Pass::BackwardData => (x, vec![w, y]),
        Pass::BackwardFilter => (w, vec![x, y]),
    };
    others.extend(bias.into_iter().chain(it.addend));
    let mut pairs: Vec<(Argument, Argument)> = others.iter().map(|&other| (written, other)).collect();
    if let Some(scratch) = workspace {
        let range = memory.range(scratch.tensor);
        assert!(range.start % 256 == 0 && scratch.bytes > 0, "{it}");
        assert!(range.end - range.start >= scratch.bytes, "{it}: the workspace is smaller");
        pairs.extend([x, w, y].into_iter().chain(bias).chain(it.addend).map(|other| (scratch.tensor, other)));
    }
    for (one, other) in pairs {
        let (a, b) = (memory.range(one), memory.range(other));
        assert!(a.end <= b.start || b.end <= a.start, "{it}: tensors {one} and {other} overlap");
    }
}

/// Calls `visit` with the indices in x, w and y of every product of the convolution: x times w is a term of y.
fn products(it: &Convolution, mut visit: impl FnMut(usize, usize, usize)) {
    let [batch, c, k, groups] = [it.batch, it.in_channels, it.out_channels, it.groups].map(|size| size as usize);
    let [[h, w], [p, q], [r, s]] = [it.input, it.output, it.kernel].map(|pair| pair.map(|size| size as usize));
    let (c_of_group, k_of_group) = (c / groups, k / groups);
    // Where an element of a tensor of four axes is.
    let place = |[b, c, h, w]: [usize; 4], [channels, height, width]: [usize; 3]| {
        if it.channels_last {
            ((b * height + h) * width + w) * channels + c
        } else {
            ((b * channels + c) * height + h) * width + w
        }
    };
    // Where an element of the kernel falls for an output pixel, if it falls on the input at all.
    let at = |axis: usize, position: usize, tap: usize, size: usize| {
        let shifted = position * it.stride[axis] as usize + tap * it.dilation[axis] as usize;
        shifted.checked_sub(it.padding[axis] as usize).filter(|&at| at < size)
    };
    for (n, out) in (0..batch).flat_map(|n| (0..k).map(move |out| (n, out))) {
        let group = out / k_of_group;
        for (row, column) in (0..p).flat_map(|row| (0..q).map(move |column| (row, column))) {
            let to = place([n, out, row, column], [k, p, q]);
            for channel in 0..c_of_group {
                for (i, j) in (0..r).flat_map(|i| (0..s).map(move |j| (i, j))) {
                    let (Some(y), Some(x)) = (at(0, row, i, h), at(1, column, j, w)) else { continue };
                    let from = place([n, group * c_of_group + channel, y, x], [c, h, w]);
                    visit(from, place([out, channel, i, j], [c_of_group, r, s]), to);
                }
            }
        }
    }
}

/// Runs a convolution. Its workspace holds nothing before and after.
pub fn run(it: &Convolution, memory: &mut dyn Memory) {
    check(it, memory);
    let spoil = |memory: &mut dyn Memory| {
        if let Some(scratch) = it.workspace {
            memory.bytes(scratch.tensor)[..scratch.bytes as usize].fill(0xff);
        }
    };
    spoil(memory);
    let mut read =
        |tensor: Argument| -> Vec<f64> { load(memory, it.element, tensor).into_iter().map(f64::from).collect() };
    let area = |pair: [u64; 2]| (pair[0] * pair[1]) as usize;
    let of_images = |channels: u64, size: [u64; 2]| (it.batch * channels) as usize * area(size);
    let weights = (it.out_channels * it.in_channels / it.groups) as usize * area(it.kernel);
    let lengths = [of_images(it.in_channels, it.input), weights, of_images(it.out_channels, it.output)];
    let [x, w, y] = [it.x, it.w, it.y].map(&mut read);
    assert_eq!([x.len(), w.len(), y.len()], lengths, "{it}: the tensors have another length");
    let [bias, addend] = [it.bias, it.addend].map(|vector| vector.map(&mut read));
    let (to, mut sums) = match it.pass {
        Pass::Forward => (it.y, if it.accumulate { y.clone() } else { vec![0.0; y.len()] }),
        Pass::BackwardData => (it.x, if it.accumulate { x.clone() } else { vec![0.0; x.len()] }),
        Pass::BackwardFilter => (it.w, if it.accumulate { w.clone() } else { vec![0.0; w.len()] }),
    };
    products(it, |i, j, k| match it.pass {
        Pass::Forward => sums[k] += x[i] * w[j],
        Pass::BackwardData => sums[i] += y[k] * w[j],
        Pass::BackwardFilter => sums[j] += y[k] * x[i],
    });
    if let Some(bias) = bias {
        let (channels, size) = match it.pass {
            Pass::BackwardData => (it.in_channels, it.input),
            Pass::Forward | Pass::BackwardFilter => (it.out_channels, it.output),
        };
        assert_eq!(bias.len() as u64, channels, "{it}: a bias has an element for each channel");
        let pixels = if it.channels_last { 1 } else { area(size) };
        sums.iter_mut().enumerate().for_each(|(index, sum)| *sum += bias[index / pixels % bias.len()]);
    }
    if let Some(addend) = addend {
        assert_eq!(addend.len(), sums.len(), "{it}: what is added has another length");
        sums.iter_mut().zip(addend).for_each(|(sum, added)| *sum += added);
    }
    for (index, sum) in sums.into_iter().enumerate() {
        // A NaN stays one.
        let value = if it.relu && sum < 0.0 { 0.0 } else { sum };
        store(memory, it.element, to, index, value as f32);
    }
    spoil(memory);
}
