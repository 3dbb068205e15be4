//! Names that PyTorch, Keras and Flax have and this language does not, with advice on what to write instead.
//!
//! The table contains only entries that stay valid when layers are added. The layers of a family are read from the list of layers, and a name that
//! becomes a layer is no longer looked up here.

use crate::settings::loss;
use gpumem_core::layers::Entry;
use gpumem_core::layers::composite::COMPOSITES;
use gpumem_core::layers::mistake::{either, listed};
use gpumem_core::suggest::plain;
use gpumem_core::train::optim::Optimizer;
use proc_macro2::Ident;

/// Advice on a name of another library.
#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    /// The end of a message that begins with "no layer or block is called ..".
    pub(crate) hint: String,
    /// The layer with which checks continue. `None` if there is no equivalent.
    pub(crate) meant: Option<&'static str>,
    /// True if the output has the shape of the input.
    pub(crate) keeps_shape: bool,
    /// True if the arguments are layers that follow each other.
    pub(crate) is_list: bool,
}

/// The advice for a group of names.
#[derive(Clone, Copy, Debug)]
enum Here {
    /// An equivalent layer.
    Layer(&'static str),
    /// Any layer of the family of this one. Then the beginning of the message, and a flag that is true if its layers keep shapes.
    Family(&'static str, &'static str, bool),
    /// A sentence.
    Says(&'static str),
    /// A sentence about something that keeps the shape of its input.
    Passes(&'static str),
    /// A sentence about attention, which ends with a list of the attention layers.
    Attention(&'static str),
    /// A list of layers.
    List,
    /// A loss.
    Loss,
    /// An optimizer.
    Optimizer,
}

use Here::{Attention, Family, Layer, List, Passes, Says};

const FUNCTION: Here = Family("Relu", "of the functions there are", true);
const NORM: Here = Family("LayerNorm", "of the normalisations there are", true);
const POOL: Here = Family("MaxPool2d", "of the poolings there are", false);
const CONVOLUTION: Here = Family("Conv2d", "of the convolutions there are", false);
const DROPOUT: Here = Family("Dropout", "of this kind there is", true);
const SHAPE: Here = Family("Flatten", "of what changes shapes there are", false);
const EMBEDDING: Here = Family("Embedding", "of the embeddings there are", false);
const JOIN: Here = Family("Add", "branches are joined by", false);
const NO_LAYER: Here = Says("the input is a parameter of `forward`, as `fn forward(image: Image<3, 224, 224>)`");
const DEVICE: Here = Passes("where a network runs is said where it is loaded, as `Net::on(&device)`; leave it out");
const TRANSFORMER: Here =
    Says("an encoder's layer is `TransformerBlock(512, 8)`, a decoder's has `Attention(q, k, v)` as well");
const INITIALIZER: Here = Says(
    "how weights begin is an option of their layer, as `Linear(64, init = XavierUniform)`, or `init(TruncatedNormal(0.02), [..])` around layers",
);
const RECURRENT: Here = Family("Lstm", "of the recurrent layers there are", false);
const ATTENTION: Here = Attention("of the attentions there are");

/// Names in lower case and without `_`, with the advice for each.
#[rustfmt::skip]
const TABLE: &[(&[&str], Here)] = &[
    (&["dense", "fc", "fullyconnected", "lazylinear"], Layer("Linear")),
    (&["densegeneral", "lineargeneral"], Says("on the last axis it is `Linear`")),
    (&["conv", "convolution2d", "lazyconv2d"], Layer("Conv2d")),
    (&["conv2dtranspose", "convtranspose", "deconv2d", "convolution2dtranspose"], Layer("ConvTranspose2d")),
    (&["conv1dtranspose"], Layer("ConvTranspose1d")),
    (&["conv3dtranspose", "deconv3d"], Layer("ConvTranspose3d")),
    (&["convolution3d"], Layer("Conv3d")),
    (&["deformconv2d", "octaveconv2d"], CONVOLUTION),
    (&["depthwiseconv2d", "depthwiseconv"], Says("it is a convolution with a group for each channel, as `Conv2d(64, 3, groups = 64)`")),
    (&["separableconv2d", "depthwiseseparableconv"],
        Says("with norms it is `DepthwiseSeparable(64, 128)`, and without two convolutions, as `[Conv2d(64, 3, groups = 64), Conv2d(128, 1)]`")),
    (&["squeezeexcitation", "squeezeandexcitation", "semodule", "selayer"], Says("it is `SqueezeExcite(64, 16)`, with the channels that arrive")),
    (&["mbconv"], Says("it is `InvertedResidual(64, 64, 1, 4, excite = SqueezeExcite(256, 16))`")),
    (&["llamamlp", "gatedmlp"], Says("it is `SwiGlu(64, 256)`")),
    (&["globalaveragepooling2d", "globalaveragepooling3d", "globalavgpool2d", "globalavgpool3d", "globalaveragepool"], Layer("GlobalAvgPool")),
    (&["averagepooling2d", "avgpool"], Layer("AvgPool2d")),
    (&["maxpooling2d", "maxpool"], Layer("MaxPool2d")),
    (&["maxpooling3d"], Layer("MaxPool3d")),
    (&["averagepooling3d"], Layer("AvgPool3d")),
    (&["maxpooling1d", "lppool2d", "fractionalmaxpool2d"], POOL),
    (&["globalmaxpool", "globalmaxpool2d", "globalmaxpooling2d"], Says("it is `[AdaptiveMaxPool2d(1), Flatten]`")),
    (&["maxunpool2d"], POOL),
    (&["layernormalization"], Layer("LayerNorm")),
    (&["groupnormalization"], Layer("GroupNorm")),
    (&["rmsnormalization"], Layer("RmsNorm")),
    (&["batchnormalization"], Passes("after a convolution it is `BatchNorm2d`")),
    (&["syncbatchnorm", "localresponsenorm"], NORM),
    (&["spectralnorm"], Says("it is an option of the layer whose weight it is, as `Linear(64, spectral_norm)`")),
    (&["instancenorm"], NORM),
    (&["unitnormalization", "l2normalize"], Passes("it is `L2Norm(-1)`")),
    (&["vectornorm", "frobeniusnorm"], Says("it is `Norm(2, 1)`, of the axis that is meant")),
    (&["takealongdim", "takealongaxis"], Layer("Gather")),
    (&["indexselect"], Says("steps are taken by indices of each sample, as `Take(x, index)`")),
    (&["scatter", "scatterreduce", "indexadd", "segmentsum"], Says("sums by indices are `ScatterAdd(x, index, src)`")),
    (&["argmin"], Says("it is `TopK(1, dim, largest = false, indices)`, of the axis that is meant")),
    (&["sort", "argsort"], Says("it is `TopK(k, dim)` with `k` as long as the axis, and with `indices` their places")),
    (&["weightnorm"], Says("it is an option of the layer whose weight it is, as `Linear(64, weight_norm)`")),
    (&["stdconv2d"], Says("it is `Conv2d(64, 3, standardized)`")),
    (&["stdconv2dsame"],
        Says("it is `Conv2d(64, 3, padding = \"same\", standardized)`; where stride 2 meets an even size it pads at the end only, as \
              `[Pad((0, 1, 0, 1)), Conv2d(64, 3, stride = 2, standardized)]`")),
    (&["scaledstdconv2d"], Says("it is `Conv2d(64, 3, standardized, gamma = 1.0)`")),
    (&["scaledstdconv2dsame"],
        Says("it is `Conv2d(64, 3, padding = \"same\", standardized, gamma = 1.0)`; where stride 2 meets an even size it pads at the end \
              only, as `[Pad((0, 1, 0, 1)), Conv2d(64, 3, stride = 2, standardized, gamma = 1.0)]`")),
    (&["swish"], Layer("Silu")),
    (&["rrelu", "threshold", "thresholdedrelu"], FUNCTION),
    (&["clamp", "clip"], Passes("it is `Hardtanh(0.0, 1.0)`, with the bounds that are meant")),
    (&["activation"], Passes("an activation is a layer of its own, as `Relu`")),
    (&["geglu"], Says("it is a product of two branches, as `Mul([Linear(64), Gelu], Linear(64))`")),
    (&["softmin"], Passes("it is `[Affine(-1.0), Softmax]`")),
    (&["softmax2d"], Passes("it is `Softmax(dim = 1)`")),
    (&["reciprocal"], Passes("it is `Pow(-1.0)`")),
    (&["square"], Passes("it is `Pow(2.0)`")),
    (&["neg", "negative"], Passes("it is `Affine(-1.0)`")),
    (&["alphadropout", "featurealphadropout", "spatialdropout1d", "gaussiandropout", "gaussiannoise"], DROPOUT),
    (&["spatialdropout2d"], Layer("Dropout2d")),
    (&["spatialdropout3d"], Layer("Dropout3d")),
    (&["stochasticdepth"], Layer("DropPath")),
    (&["embed"], Layer("Embedding")),
    (&["embeddingbag"], EMBEDDING),
    (&["rotaryembedding", "rotaryposembedding", "rope"], Layer("Rotary")),
    (&["positionalencoding", "positionalembedding", "positionencoding", "learnedpositionembedding"],
        Passes("positions are added to what arrives, as `Add([], PositionEmbedding(196))`")),
    (&["multiheaddotproductattention", "selfattention", "additiveattention"], ATTENTION),
    (&["groupqueryattention"], ATTENTION),
    (&["alibi"], Layer("AlibiBias")),
    (&["scaleddotproductattention", "crossattention"], Says("queries, keys and values are branches of `Attention(q, k, v)`")),
    (&["transformer", "transformerencoder", "transformerencoderlayer", "transformerdecoder", "transformerdecoderlayer"], TRANSFORMER),
    (&["cudnnlstm", "longshorttermmemory"], Layer("Lstm")),
    (&["cudnngru", "gatedrecurrentunit"], Layer("Gru")),
    (&["simplernn"], Layer("Rnn")),
    (&["lstmcell", "grucell", "rnncell", "simplernncell"],
        Says("a cell is one step; all steps of a sequence go through `Lstm(128)`, `Gru(128)` or `Rnn(128)`")),
    (&["bidirectional"], Says("it is an option, as `Lstm(128, bidirectional = true)`")),
    (&["convlstm2d", "recurrent", "qrnn", "sru", "indrnn"], RECURRENT),
    (&["sequential", "modulelist", "moduledict"], List),
    (&["parameterlist", "parameterdict", "param", "variable"],
        Says("learned numbers of one's own are `Parameter((100, 256), init = Normal(0.02))`")),
    (&["xavieruniform", "xaviernormal", "glorotuniform", "glorotnormal", "kaiminguniform", "kaimingnormal", "heuniform", "henormal"], INITIALIZER),
    (&["truncnormal", "truncatednormal", "randomnormal", "randomuniform", "orthogonal", "variancescaling"], INITIALIZER),
    (&["identity", "noop", "passthrough"], Passes("what passes its input on is `[]`")),
    (&["input", "inputlayer", "placeholder"], NO_LAYER),
    (&["lambda", "module"], Says("code cannot stand in a network; what layers can compute is a block, as `fn name() -> Block { [..] }`")),
    (&["timedistributed", "vmap"], Says("`Linear` and the norms work on every step of a sequence; leave it out")),
    (&["min", "amin"], Says("it is `[Affine(-1.0), Max(1), Affine(-1.0)]`")),
    (&["view", "unflatten", "flip", "rearrange", "movedim"], SHAPE),
    (&["swapaxes", "repeatvector", "chunk", "split", "unfold", "fold"], SHAPE),
    (&["cropping1d", "cropping2d"], Says("numbers below 0 cut off: `Pad(-1)`")),
    (&["contiguous"], Passes("every value lies as its layer needs it; leave it out")),
    (&["zeropad1d", "zeropad2d", "zeropadding1d", "zeropadding2d", "zeropad3d", "zeropadding3d"], Layer("Pad")),
    (&["constantpad1d", "constantpad2d", "constantpad3d"], Says("it is `Pad(1, value = 0.5)`")),
    (&["reflectionpad1d", "reflectionpad2d", "reflectionpad3d"], Says("it is `Pad(1, mode = \"reflect\")`")),
    (&["replicationpad1d", "replicationpad2d", "replicationpad3d"], Says("it is `Pad(1, mode = \"replicate\")`")),
    (&["circularpad1d", "circularpad2d", "circularpad3d"], Says("it is `Pad(1, mode = \"circular\")`")),
    (&["upsampling2d", "upsampling3d", "upsamplingnearest2d", "interpolate"], Layer("Upsample")),
    (&["upsamplingbilinear2d"], Says("it is `Upsample(2, mode = \"bilinear\", align_corners = true)`")),
    (&["resizing"], Says("it is `Upsample(size = (32, 48), mode = \"bilinear\")`")),
    (&["cat", "concatenate", "hstack", "vstack"], Says("branches are put side by side by `Concat(x, y)`")),
    (&["stack", "bilinear", "cosinesimilarity", "pairwisedistance", "einsum"], JOIN),
    (&["multiply"], Says("branches are multiplied by `Mul(x, y)`")),
    (&["subtract"], Says("branches are subtracted by `Sub(x, y)`")),
    (&["divide"], Says("branches are divided by `Div(x, y)`")),
    (&["bmm", "mm", "dot"], Says("branches are multiplied as matrices by `MatMul(x, y)`")),
    (&["average"], Says("the mean of two branches is `[Add(x, y), Affine(0.5)]`")),
    (&["registerbuffer", "buffer"], Says("numbers that are written in the network are `Constant([0.5, 1.0])`")),
    (&["detach", "stopgradient", "nograd"], Passes("nothing flows back through `detach(x)`, or through `detach` after a value")),
    (&["requiresgrad"], Passes("what is not trained is written `freeze(..)`")),
    (&["eval"], Passes("what computes in training as it does without is written `eval(x)`; a network has no mode: `forward` is never training")),
    (&["train"], Passes("what computes in training as training does is written `train(x)`; a network has no mode: `train_step` is always training")),
    (&["cuda", "cpu", "to", "device"], DEVICE),
    (&["bceloss", "crossentropy", "mse"], Here::Loss),
];

/// Modules in which PyTorch, Keras and Flax have their layers.
const MODULES: [&str; 12] =
    ["nn", "F", "torch", "functional", "modules", "tf", "keras", "layers", "torchvision", "linen", "nnx", "jax"];

/// True if a name is one of these modules.
pub(crate) fn is_module(name: &Ident) -> bool {
    MODULES.iter().any(|module| name == module)
}

/// Returns the layer whose name differs only in case and `_`, as for `relu` or `ReLU`.
pub(crate) fn layer_called(name: &Ident) -> Option<Ident> {
    let target = plain(&name.to_string());
    Entry::names().into_iter().find(|known| plain(known) == target).map(|known| Ident::new(known, name.span()))
}

/// Returns advice on `name` if another library has it and no layer here has that name.
pub(crate) fn of_elsewhere(name: &str) -> Option<Elsewhere> {
    let plain_name = plain(name);
    let composites = COMPOSITES.iter().map(|composite| composite.name);
    if Entry::names().into_iter().chain(composites).any(|known| plain(known) == plain_name) {
        return None;
    }
    let known = TABLE.iter().find(|(names, _)| names.contains(&plain_name.as_str()));
    // PyTorch's modules of losses end with `Loss`, as losses here do not.
    let loss = || loss::of_elsewhere(name).filter(|_| plain_name.ends_with("loss")).map(|_| &Here::Loss);
    let is_optimizer = Optimizer::ROWS.iter().any(|row| plain(row.name) == plain_name);
    let optimizer = || is_optimizer.then_some(&Here::Optimizer);
    known.map(|(_, here)| here).or_else(loss).or_else(optimizer).map(|here| here.says(name))
}

impl Here {
    fn says(self, name: &str) -> Elsewhere {
        let says = |hint: String| Elsewhere { hint, meant: None, keeps_shape: false, is_list: false };
        match self {
            Layer(layer) => Elsewhere { meant: Some(layer), ..says(format!("here it is `{layer}`")) },
            Family(member, begin, keeps_shape) => {
                Elsewhere { keeps_shape, ..says(format!("{begin} {}", listed(&Entry::family(member)))) }
            }
            Says(hint) => says(hint.into()),
            Passes(hint) => Elsewhere { keeps_shape: true, ..says(hint.into()) },
            Attention(begin) => {
                let layers: Vec<String> = Entry::family("CausalSelfAttention").into_iter().map(call).collect();
                let layers: Vec<&str> = layers.iter().map(String::as_str).collect();
                says(format!("{begin} {}", either(&layers)))
            }
            List => Elsewhere { is_list: true, ..says("layers are listed, as `[Linear(8), Relu]`".into()) },
            Here::Loss => {
                let hint = "a loss is no layer but a field of `TRAIN`, as `loss:";
                let hint = match loss::of_elsewhere(name) {
                    Some(loss) => format!("{hint} {}`", loss::example(loss)),
                    None => format!("{hint} CrossEntropy`; it is {}", either(&loss::names())),
                };
                Elsewhere { keeps_shape: true, ..says(hint) }
            }
            Here::Optimizer => {
                let optimizers: Vec<&str> = Optimizer::ROWS.iter().map(|row| row.name).collect();
                let hint = "an optimizer is no layer but a field of `TRAIN`, as `optimizer: Adam { lr: 1e-3 }`; it is";
                Elsewhere { keeps_shape: true, ..says(format!("{hint} {}", either(&optimizers))) }
            }
        }
    }
}

/// Returns a layer with its arguments: `CausalSelfAttention(heads)`.
fn call(name: &'static str) -> String {
    let form = Entry::find(name).and_then(|entry| entry.signature().forms().into_iter().next()).unwrap_or_default();
    if form.is_empty() { name.to_string() } else { format!("{name}({})", form.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::{COMPOSITES, Here, Optimizer, TABLE, loss, plain};
    use gpumem_core::layers::Entry;
    use gpumem_core::layers::composite::is_composite;
    use gpumem_core::layers::initializer::Initializer;
    use std::collections::HashSet;

    #[test]
    fn no_name_is_a_layers_or_stands_twice() {
        let composites = COMPOSITES.iter().map(|composite| composite.name);
        let layers: HashSet<String> = Entry::names().into_iter().chain(composites).map(plain).collect();
        let mut seen = HashSet::new();
        for name in TABLE.iter().flat_map(|(names, _)| *names) {
            assert!(!layers.contains(*name), "there is a layer `{name}` now; remove the name from the table");
            assert!(seen.insert(name), "`{name}` stands in the table twice");
            assert_eq!(plain(name), *name);
        }
        assert!(seen.len() >= 80);
    }

    /// Every name in a hint that begins with a capital letter is a layer, or one of the few other names of the language.
    #[test]
    fn hints_name_what_exists() {
        let others = ["Image", "Block", "Net", "TRAIN"];
        for (names, here) in TABLE {
            if let Here::Family(member, ..) | Here::Layer(member) = here {
                assert!(Entry::find(member).is_some(), "{member}");
            }
            let hint = here.says(names[0]).hint;
            for (index, code) in hint.split('`').enumerate().filter(|(index, _)| index % 2 == 1) {
                let words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
                for word in words.filter(|word| word.starts_with(char::is_uppercase)) {
                    let is_optimizer = Optimizer::ROWS.iter().any(|row| row.name == word);
                    let is_known = [&others[..], &loss::names()].iter().any(|names| names.contains(&word));
                    let is_known = is_known
                        || is_optimizer
                        || Initializer::names().contains(&word)
                        || is_composite(word)
                        || Entry::find(word).is_some();
                    assert!(is_known, "the hint for {names:?} names `{word}` (part {index}): {hint}");
                }
            }
        }
    }

    /// Tests that the families in a hint do not depend on which layers exist.
    #[test]
    fn families_are_read_from_the_layers() {
        for entry in Entry::all() {
            assert!(Entry::family(entry.name).contains(&entry.name));
        }
        assert!(Entry::family("Relu").contains(&"Gelu"));
    }
}
