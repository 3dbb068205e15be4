//! PyTorch's ways of putting layers together.
use gpumem::network;

network! {
    pub struct Modules;
    fn forward(image: Image<3, 8, 8>) -> Map<16, 8, 8> {
        [nn.Conv2d(3, 16, 3, padding = 1), nn.ReLU(), F.relu(x), nn::Tanh]
    }
}

network! {
    pub struct Called;
    fn forward(image: Image<3, 8, 8>) -> Map<16, 6, 6> {
        let x = Conv2d(16, 3)(image);
        let x = Relu(x);
        [x]
    }
}

network! {
    pub struct Chained;
    fn forward(image: Image<3, 8, 8>) -> Map<16, 6, 6> {
        image.conv2d(16, 3).relu()
    }
}

network! {
    pub struct Joined;
    fn forward(image: Image<3, 8, 8>) -> Map<3, 8, 8> {
        image + Conv2d(3, 3, padding = 1)
    }
}

network! {
    pub struct Positional;
    fn forward(image: Image<3, 8, 8>) -> Map<8, 8, 8> {
        [Conv2d(3, 8, 3, 1, 1), MaxPool2d(1, kv_heads = 2)]
    }
}

network! {
    pub struct Positions;
    fn forward(patches: Sequence<196, 32>) -> Sequence<196, 32> {
        [PositionEmbedding(196), LayerNorm]
    }
}

network! {
    pub struct Fields;
    fn forward(image: Image<3, 8, 8>) -> Map<16, 6, 6> {
        self.conv(image)
    }
}

network! {
    pub struct Assigned;
    fn forward(image: Image<3, 8, 8>) -> Map<16, 6, 6> {
        x = Conv2d(16, 3)(image);
        x = F.relu(x);
        x
    }
}

fn main() {}
