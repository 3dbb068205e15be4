//! Composites: blocks that every network can call, written in the language that they are called in.
//!
//! A composite is text for the macro, which resolves it like a block of the network. Its shapes and costs follow from its layers. A new
//! composite is an entry of the list below.

/// A composite: its name and its declaration.
#[derive(Clone, Copy, Debug)]
pub struct Composite {
    /// The name in the language.
    pub name: &'static str,
    /// `fn Name(..) -> Block { .. }`, with defaults of parameters.
    pub text: &'static str,
}

macro_rules! composites {
    ($($(#[$doc:meta])* fn $name:ident $parameters:tt -> Block $body:tt)*) => {
        $(
            $(#[$doc])*
            ///
            /// It is written as
            ///
            /// ```text
            #[doc = concat!("fn ", stringify!($name), stringify!($parameters), " -> Block ", stringify!($body))]
            /// ```
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}
        )*

        /// All composites.
        pub const COMPOSITES: &[Composite] = &[$(Composite {
            name: stringify!($name),
            text: concat!("fn ", stringify!($name), stringify!($parameters), " -> Block ", stringify!($body)),
        },)*];
    };
}

composites! {
    /// `SqueezeExcite(channels, squeezed, activation = Relu, scale_activation = Sigmoid)`: every channel times a number between 0
    /// and 1, which is computed from the means of all channels.
    ///
    /// * Input and output `[channels, H, W]`; `squeezed` is the number of channels between the two convolutions.
    /// * Parameters: `fc1.weight` `[squeezed, channels, 1, 1]`, `fc1.bias`, `fc2.weight` `[channels, squeezed, 1, 1]`, `fc2.bias`.
    ///
    /// PyTorch: `torchvision.ops.SqueezeExcitation(channels, squeezed)`.
    fn SqueezeExcite(channels: usize, squeezed: usize, activation: Block = Relu, scale_activation: Block = Sigmoid) -> Block {
        [Mul([], [
            AdaptiveAvgPool2d(1), Conv2d(channels, squeezed, 1, name = "fc1"), activation,
            Conv2d(squeezed, channels, 1, name = "fc2"), scale_activation,
        ])]
    }

    /// `TransformerBlock(width, heads, hidden = 2048, dropout = 0.1, activation = Relu, norm_first = false, causal = false)`: attention and
    /// a perceptron, each added to its input.
    ///
    /// * Input and output `[T, width]`; `heads` divides `width`. `hidden` is the width of the perceptron.
    /// * `norm_first` normalises before attention and perceptron, rather than after the sums. With `causal` a time step sees itself and
    ///   those before it.
    /// * `dropout` applies to the attention's weights, after the attention, inside the perceptron and after it.
    /// * Parameters: those of `self_attn`, a [`MultiHeadAttention`](super::MultiHeadAttention), of `linear1` and `linear2`, and of
    ///   `norm1` and `norm2`.
    ///
    /// PyTorch: `torch.nn.TransformerEncoderLayer(width, heads, hidden, dropout, activation, batch_first=True, norm_first=norm_first)`.
    fn TransformerBlock(
        width: usize, heads: usize, hidden: usize = 2048, dropout: f64 = 0.1, activation: Block = Relu,
        norm_first: bool = false, causal: bool = false
    ) -> Block {
        if norm_first {
            [
                Add([], [
                    LayerNorm(name = "norm1"),
                    MultiHeadAttention(heads, causal = causal, dropout = dropout, name = "self_attn"), Dropout(dropout),
                ]),
                Add([], [
                    LayerNorm(name = "norm2"), Linear(hidden, name = "linear1"), activation, Dropout(dropout),
                    Linear(width, name = "linear2"), Dropout(dropout),
                ]),
            ]
        } else {
            [
                Add([], [
                    MultiHeadAttention(heads, causal = causal, dropout = dropout, name = "self_attn"), Dropout(dropout),
                ]),
                LayerNorm(name = "norm1"),
                Add([], [
                    Linear(hidden, name = "linear1"), activation, Dropout(dropout),
                    Linear(width, name = "linear2"), Dropout(dropout),
                ]),
                LayerNorm(name = "norm2"),
            ]
        }
    }

    /// `SwiGlu(width, hidden, bias = false)`: a perceptron whose hidden values are multiplied by gates, `down(silu(gate(x)) * up(x))`.
    ///
    /// * Input `[.., in_features]`, output `[.., width]`.
    /// * Parameters: `gate_proj.weight` and `up_proj.weight` `[hidden, in_features]`, `down_proj.weight` `[width, hidden]`; with `bias`
    ///   a bias of each.
    ///
    /// PyTorch: `transformers.models.llama.modeling_llama.LlamaMLP(config)`.
    fn SwiGlu(width: usize, hidden: usize, bias: bool = false) -> Block {
        [
            Mul([Linear(hidden, bias = bias, name = "gate_proj"), Silu], Linear(hidden, bias = bias, name = "up_proj")),
            Linear(width, bias = bias, name = "down_proj"),
        ]
    }

    /// `InvertedResidual(in_channels, out_channels, stride, expansion, kernel_size = 3, activation = Relu6, excite = [])`: a depthwise
    /// convolution between two 1x1 convolutions, which widen and narrow the channels.
    ///
    /// * Input `[in_channels, H, W]`, output `[out_channels, H / stride, W / stride]`, rounded up.
    /// * Between the 1x1 convolutions there are `expansion * in_channels` channels; the first one is left out if `expansion` is 1. `excite`
    ///   runs before the last one, as `SqueezeExcite(96, 24)`.
    /// * The input is added to the output if it has the output's shape.
    /// * Parameters: those of the convolutions `conv_pw`, `conv_dw` and `conv_pwl`, without biases, and of the norms `bn1`, `bn2` and
    ///   `bn3`.
    ///
    /// PyTorch: `torchvision.models.mobilenetv2.InvertedResidual(in_channels, out_channels, stride, expansion)`, with the names of
    /// `timm.models._efficientnet_blocks.InvertedResidual`.
    fn InvertedResidual(
        in_channels: usize, out_channels: usize, stride: usize, expansion: usize, kernel_size: usize = 3,
        activation: Block = Relu6, excite: Block = []
    ) -> Block {
        [
            if stride == 1 && in_channels == out_channels { tap(start) },
            if expansion > 1 {
                [
                    Conv2d(in_channels, expansion * in_channels, 1, bias = false, name = "conv_pw"),
                    BatchNorm2d(name = "bn1"), activation,
                ]
            },
            Conv2d(
                expansion * in_channels, kernel_size, stride = stride, padding = kernel_size / 2,
                groups = expansion * in_channels, bias = false, name = "conv_dw"
            ),
            BatchNorm2d(name = "bn2"), activation, excite,
            Conv2d(out_channels, 1, bias = false, name = "conv_pwl"), BatchNorm2d(name = "bn3"),
            if stride == 1 && in_channels == out_channels { Add([], from(start)) },
        ]
    }

    /// `DepthwiseSeparable(in_channels, out_channels, stride = 1, kernel_size = 3, activation = Relu)`: a depthwise convolution, and a 1x1
    /// convolution.
    ///
    /// * Input `[in_channels, H, W]`, output `[out_channels, H / stride, W / stride]`, rounded up.
    /// * Parameters: those of the convolutions `conv_dw` and `conv_pw`, without biases, and of the norms `bn1` and `bn2`.
    ///
    /// PyTorch: `timm.models._efficientnet_blocks.DepthwiseSeparableConv(in_channels, out_channels, kernel_size, stride, pw_act=True,
    /// noskip=True)`.
    fn DepthwiseSeparable(
        in_channels: usize, out_channels: usize, stride: usize = 1, kernel_size: usize = 3, activation: Block = Relu
    ) -> Block {
        [
            Conv2d(
                in_channels, in_channels, kernel_size, stride = stride, padding = kernel_size / 2, groups = in_channels, bias = false,
                name = "conv_dw"
            ),
            BatchNorm2d(name = "bn1"), activation,
            Conv2d(out_channels, 1, bias = false, name = "conv_pw"), BatchNorm2d(name = "bn2"), activation,
        ]
    }
}

/// True if a composite is called `name`.
pub fn is_composite(name: &str) -> bool {
    COMPOSITES.iter().any(|composite| composite.name == name)
}
