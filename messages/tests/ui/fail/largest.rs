use gpumem::prelude::*;

network! {
    struct OfNoCard;
    const TRAIN: Train = Train { batch: Largest };
    fn forward(x: Features<8>) -> Logits<2> { [Linear(2)] }
}

network! {
    struct TooLarge;
    const TRAIN: Train = Train { batch: Largest, cards: [GTX_1050_TI] };
    fn forward(x: Features<65536>) -> Logits<65536> { [Linear(65536)] }
}

network! {
    struct Generic<const BATCH: usize>;
    const TRAIN: Train = Train { batch: Largest, cards: [T4] };
    fn forward(x: Features<8>) -> Logits<2> { [Linear(2)] }
}

network! {
    struct Small;
    const TRAIN: Train = Train { batch: 1 };
    fn forward(x: Features<8>) -> Logits<2> { [Linear(2)] }
}

const NAMES_NO_CARD: usize = max_batch!(Small);
const HAS_A_TYPO: usize = max_batch!(Small, RTX_306O);
const IS_OF_TWO: usize = max_batch!(Small + TooLarge, RTX_3060);

fn main() {}
