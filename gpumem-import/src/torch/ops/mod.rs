//! The operations: what each allocates, what autograd keeps for it, and what its derivative allocates.

mod attention;
mod cells;
mod elementwise;
mod in_place;
mod loss;
mod movement;
mod norm;
mod product;
mod recurrent;
mod reduce;
mod unary;
mod views;
mod window;

pub(super) use loss::target_elements;

use super::call::{Call, Fault, Outputs};
use super::meta::Tensor;
use crate::model::Dtype;

/// Runs an operation.
pub(super) fn run(c: &Call<'_>) -> Outputs {
    let name = &c.node.op[..];
    // `__and__` and the like end in an underscore, too.
    let (op, is_in_place) = match name.strip_suffix('_') {
        Some(op) if !name.ends_with("__") => (op, true),
        _ => (name, false),
    };
    // Other names of operations.
    let op = match op {
        "multiply" => "mul",
        "divide" => "div",
        "subtract" => "sub",
        op => op,
    };
    if let Some(row) = unary::find(op) {
        return unary::run(c, row, is_in_place);
    }
    match op {
        "add"
        | "sub"
        | "mul"
        | "div"
        | "true_divide"
        | "masked_fill"
        | "scatter"
        | "scatter_add"
        | "scatter_reduce"
        | "index_add"
        | "index_put"
        | "index_fill"
        | "index_copy"
        | "dropout"
        | "native_dropout"
        | "alpha_dropout"
        | "feature_dropout"
        | "feature_alpha_dropout" => changeable(c, op, is_in_place),
        _ if is_in_place => overwritten(c, op),
        _ => functional(c, op),
    }
}

/// Operations of which there is one in place.
fn changeable(c: &Call<'_>, op: &str, is_in_place: bool) -> Outputs {
    match op {
        "add" | "sub" => elementwise::add(c, is_in_place),
        "mul" => elementwise::mul(c, is_in_place),
        "div" | "true_divide" => elementwise::div(c, is_in_place),
        "masked_fill" => elementwise::masked_fill(c, is_in_place),
        "dropout" | "native_dropout" => norm::dropout(c, is_in_place),
        "alpha_dropout" | "feature_dropout" | "feature_alpha_dropout" => norm::feature_dropout(c),
        _ => reduce::scatter(c, is_in_place),
    }
}

/// Operations in place that are no others' twins.
fn overwritten(c: &Call<'_>, op: &str) -> Outputs {
    match op {
        "copy" => movement::copy(c),
        "zero" | "fill" | "bernoulli" | "normal" | "uniform" | "random" | "exponential" | "fill_diagonal" | "triu"
        | "tril" => movement::overwritten(c),
        "squeeze" => views::squeeze(c),
        "unsqueeze" => views::unsqueeze(c),
        "transpose" | "t" => views::transpose(c),
        "requires_grad" => movement::itself(c),
        "detach" => movement::detached(c),
        _ => Err(Fault::Unknown),
    }
}

fn functional(c: &Call<'_>, op: &str) -> Outputs {
    match op {
        "rsub" => elementwise::rsub(c),
        "log_sigmoid" => unary::log_sigmoid(c),
        "maximum" | "minimum" | "fmax" | "fmin" | "atan2" | "hypot" | "fmod" | "remainder" => elementwise::binary(c),
        "floor_divide" | "bitwise_left_shift" | "bitwise_right_shift" | "bitwise_xor" => {
            elementwise::plain(c, c.output_dtype(0).unwrap_or(Dtype::I64))
        }
        "__and__" | "__or__" | "__xor__" | "bitwise_and" | "bitwise_or" | "bitwise_not" => {
            elementwise::plain(c, c.output_dtype(0).unwrap_or(Dtype::Bool))
        }
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "logical_not" | "logical_and" | "logical_or" | "logical_xor"
        | "isnan" | "isinf" | "isfinite" => unary::compare(c),
        "pow" => elementwise::pow(c),
        "addcmul" | "addcdiv" => elementwise::addcmul(c),
        "lerp" => elementwise::lerp(c),
        "where" => elementwise::condition(c),
        "glu" => norm::glu(c),
        "prelu" | "_prelu_kernel" => norm::prelu(c),
        "softmax" | "_softmax" | "log_softmax" | "_log_softmax" => norm::softmax(c),
        "batch_norm" | "native_batch_norm" | "_native_batch_norm_legit" | "_batch_norm_with_update" => {
            norm::batch_norm(c)
        }
        "instance_norm" => norm::instance_norm(c),
        "layer_norm" => norm::layer_norm(c),
        "group_norm" => norm::group_norm(c),
        "rms_norm" => norm::rms_norm(c),
        "_weight_norm" => norm::weight_norm(c),
        "bilinear" => product::bilinear(c),
        "affine_grid_generator" => reduce::grid(c),
        "cosine_similarity" => reduce::cosine(c),
        "diag_embed" => views::diagonal_matrices(c),
        "outer" | "ger" => product::outer(c),
        "grid_sampler" | "grid_sampler_2d" | "grid_sampler_3d" => reduce::sampled(c),
        "matmul" | "mm" | "bmm" | "mv" | "dot" => product::matmul(c),
        "linear" => product::linear(c),
        "addmm" => product::addmm(c),
        "baddbmm" => product::baddbmm(c),
        "einsum" => product::einsum(c),
        "scaled_dot_product_attention" => attention::attention(c),
        "lstm" | "gru" | "rnn_tanh" | "rnn_relu" => recurrent::recurrent(c),
        "l1_loss" => loss::absolute(c),
        "cross_entropy_loss" => loss::cross_entropy(c),
        "nll_loss" | "nll_loss_nd" | "nll_loss2d" => loss::likelihood(c),
        "mse_loss"
        | "smooth_l1_loss"
        | "huber_loss"
        | "binary_cross_entropy"
        | "binary_cross_entropy_with_logits"
        | "kl_div" => loss::of_elements(c),
        _ if op.contains("grouped_mm") => product::grouped(c),
        _ if op.contains("conv") => window::convolution(c),
        _ if op.contains("max_pool") => window::max_pool(c),
        _ if op.starts_with("adaptive_avg_pool") => window::adaptive_avg_pool(c),
        _ if op.starts_with("avg_pool") => window::avg_pool(c),
        _ if op.starts_with("upsample") || op.starts_with("_upsample") => window::upsample(c),
        _ => shaped(c, op),
    }
}

/// Views, copies, reductions and tensors that are made.
fn shaped(c: &Call<'_>, op: &str) -> Outputs {
    match op {
        "view" | "_unsafe_view" | "unflatten" => views::view(c),
        "reshape" | "reshape_as" | "view_as" => views::reshape(c),
        "flatten" => views::flatten(c),
        "transpose" | "t" | "numpy_T" | "swapaxes" | "adjoint" | "mT" | "swapdims" => views::transpose(c),
        "permute" => views::permute(c),
        "movedim" | "moveaxis" => views::movedim(c),
        "unsqueeze" => views::unsqueeze(c),
        "squeeze" => views::squeeze(c),
        "expand" | "expand_as" | "broadcast_to" => views::expand(c),
        "slice" => views::slice(c),
        "narrow" => views::narrow(c),
        "select" => views::select(c),
        "unfold" => views::unfold(c),
        "diagonal" => views::diagonal(c),
        "as_strided" | "view_as_complex" | "view_as_real" => views::recorded_view(c),
        "split" | "split_with_sizes" | "chunk" | "tensor_split" | "unsafe_chunk" | "unsafe_split" => views::split(c),
        "unbind" => views::unbind(c),
        "broadcast_tensors" => views::broadcast_all(c),
        "meshgrid" => views::meshgrid(c),
        "clone" => movement::clone(c),
        "contiguous" => movement::contiguous(c),
        "alias" | "lift_fresh" | "resolve_conj" | "resolve_neg" => movement::itself(c),
        "detach" | "lift_fresh_copy" => movement::detached(c),
        "to" | "_to_copy" | "type_as" | "float" | "half" | "bfloat16" | "double" | "long" => movement::to(c),
        "cat" | "concat" | "concatenate" => movement::cat(c),
        "stack" => movement::stack(c),
        "roll" | "flip" | "tril" | "triu" | "cumsum" => movement::rearranged(c),
        "repeat" | "tile" => movement::repeat(c),
        "pad" | "constant_pad_nd" | "reflection_pad1d" | "reflection_pad2d" | "replication_pad1d"
        | "replication_pad2d" => movement::pad(c),
        "pixel_unshuffle" | "im2col" | "col2im" | "repeat_interleave" => movement::shuffle(c),
        _ if op.ends_with("_shuffle") => movement::shuffle(c),
        "zeros" | "ones" | "empty" | "rand" | "randn" | "randint" | "full" | "scalar_tensor" | "arange"
        | "linspace" | "eye" | "new_zeros" | "new_ones" | "new_empty" | "new_full" | "tril_indices"
        | "triu_indices" | "randperm" => movement::created(c),
        _ if op.ends_with("_like") => movement::created_like(c),
        "mean" => reduce::mean(c),
        "sum" => reduce::sum(c),
        "max" | "min" => reduce::extreme(c),
        "amax" | "amin" => reduce::extremes(c),
        "argmax" | "argmin" | "any" | "all" | "count_nonzero" => reduce::index_of(c),
        "topk" | "sort" | "median" | "kthvalue" | "mode" | "cummax" | "cummin" => reduce::picked(c),
        "linalg_vector_norm" | "norm" => reduce::norm(c),
        "var" | "std" | "var_mean" | "std_mean" => reduce::variance(c),
        "logsumexp" => reduce::logsumexp(c),
        "prod" => reduce::prod(c),
        "embedding" => reduce::embedding(c),
        "gather" | "take_along_dim" => reduce::gather(c),
        "index_select" => reduce::index_select(c),
        "index" => reduce::index(c),
        "diff" => reduce::diff(c),
        "histc" | "bincount" | "one_hot" | "argsort" | "searchsorted" | "bucketize" | "nonzero" | "isin"
        | "bernoulli" | "multinomial" => reduce::recorded(c),
        _ => Err(Fault::Unknown),
    }
}

/// Runs an operation of which nothing is known: new tensors of the recorded shapes. `keeps` says if it keeps what it reads and returns.
pub(super) fn unknown(c: &Call<'_>, keeps: bool) -> Outputs {
    let outputs = reduce::recorded(c)?;
    let mut inputs = Vec::new();
    for id in c.node.tensors() {
        inputs.push(c.value(id)?);
    }
    let shapes: Vec<Vec<u64>> = inputs.iter().map(|input| input.shape.clone()).collect();
    let all: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
    let saved = if keeps { inputs.iter().chain(&outputs).map(Some).collect() } else { Vec::new() };
    c.e.record(&outputs.iter().collect::<Vec<_>>(), &all, saved, move |b| {
        let gradient = |(index, shape): (usize, &Vec<u64>)| b.needs(index).then(|| b.fresh(shape));
        shapes.iter().enumerate().map(gradient).collect()
    });
    Ok(outputs)
}
