//! Layers of which a step trains some parameters: their gradients are those of a step that trains all of them.

use gpumem::prelude::*;
use gpumem::{Cpu, Kind, Network};
use gpumem::{D, HostShape};

fn tensor<S: HostShape>(salt: usize) -> Tensor<f32, S> {
    Tensor::from_fn(|index| ((index * 7 + salt * 3) % 11) as f32 / 11.0 - 0.4)
}

/// Layers after an input that has no gradient, with a step that trains everything and one for some parameters of the layers.
macro_rules! networks {
    ($($name:ident: [$($layers:tt)*], $some:literal;)*) => {
        $(
            network! {
                pub struct $name;

                const ALL: Train = Train { batch: 4, trains: "*", optimizer: Sgd { lr: 0.5 }, loss: Mse };
                const SOME: Train = Train { batch: 4, trains: $some, optimizer: Sgd { lr: 0.5 }, loss: Mse };

                fn forward(x: Sequence<5, 3>) -> Sequence<5, 2> {
                    [$($layers)*, Linear(2)]
                }
            }
        )*
    };
}

networks! {
    Lstm1: [Lstm(4)], "*weight_hh*";
    LstmBoth: [Lstm(4, bidirectional)], "*weight_hh_l0";
    LstmDeep: [Lstm(4, layers = 2, bidirectional)], "*_l0_reverse";
    LstmProjected: [Lstm(4, proj_size = 3)], "*weight_hr*";
    Gru1: [Gru(4)], "*bias_hh*";
    GruBoth: [Gru(4, bidirectional)], "*_l0_reverse";
    Rnn1: [Rnn(4)], "*weight_hh*";
    RnnBoth: [Rnn(4, bidirectional)], "*weight_hh_l0_reverse";
}

macro_rules! check {
    ($($name:ident)*) => {
        $({
            let cpu = Cpu::new().with_poison(true);
            let [mut whole, mut part] = [0, 1].map(|_| $name::on(&cpu).unwrap());
            let (x, target) = (tensor::<(D<4>, D<5>, D<3>)>(1), tensor::<(D<4>, D<5>, D<2>)>(2));
            let before = parameters(&mut part);
            let loss = $name::all(&mut whole).train_step(&x, &target).unwrap();
            assert_eq!($name::some(&mut part).train_step(&x, &target).unwrap().to_bits(), loss.to_bits());
            let (mut trained, mut resting) = (0, 0);
            for ((name, all), (_, old)) in parameters(&mut whole).into_iter().zip(before) {
                let some = part.get(&name).unwrap();
                if some == old {
                    resting += 1;
                } else {
                    assert_eq!(some, all, "{}: {name}", $name::NAME);
                    trained += 1;
                }
            }
            assert!(trained > 0 && resting > 0, "{}: {trained} trained, {resting} resting", $name::NAME);
        })*
    };
}

fn parameters<N: Network>(net: &mut gpumem::Net<N, Cpu>) -> Vec<(String, Vec<f32>)> {
    let names: Vec<String> =
        net.tensors().filter(|tensor| tensor.kind == Kind::Parameter).map(|tensor| tensor.name.into()).collect();
    names.into_iter().map(|name| (name.clone(), net.get(&name).unwrap())).collect()
}

#[test]
fn some_parameters_of_a_recurrent_layer() {
    check! { Lstm1 LstmBoth LstmDeep LstmProjected Gru1 GruBoth Rnn1 RnnBoth }
}
