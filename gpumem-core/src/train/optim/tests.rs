use super::*;
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

#[test]
fn states_are_there_where_they_are_needed() {
    let rms = |momentum, centered| Optimizer::RmsProp(RmsProp { momentum, centered, ..RmsProp::DEFAULT });
    for (optimizer, moments) in [
        (Optimizer::Sgd(Sgd::DEFAULT), 0),
        (Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT }), 1),
        (Optimizer::Adam(Adam::DEFAULT), 2),
        (Optimizer::AdamW(AdamW::DEFAULT), 2),
        (Optimizer::Lion(Lion::DEFAULT), 1),
        (rms(0.0, false), 1),
        (rms(0.9, false), 2),
        (rms(0.0, true), 2),
        (rms(0.9, true), 3),
        (Optimizer::Adagrad(Adagrad::DEFAULT), 1),
        (Optimizer::Adadelta(Adadelta::DEFAULT), 2),
        (Optimizer::NAdam(NAdam::DEFAULT), 2),
        (Optimizer::Adamax(Adamax::DEFAULT), 2),
        (Optimizer::RAdam(RAdam::DEFAULT), 2),
    ] {
        assert_eq!(optimizer.moments(), moments, "{optimizer:?}");
    }
    let moments = Optimizer::Adafactor(Adafactor::DEFAULT).moments();
    assert_eq!((state_count(moments), whole_states(moments), whole_states(3)), (2, (0, true), (3, false)));
    let extents = [0, 1, 2, 200].map(|index| extent_of(moments, index));
    assert_eq!(extents, [Extent::Rows, Extent::Columns, Extent::Whole, Extent::Whole]);
    let moments = Optimizer::AdamW8bit(AdamW8bit::DEFAULT).moments();
    assert_eq!((state_count(moments), whole_states(moments)), (4, (0, true)));
    let extents = [0, 1, 2, 3, 4, 200].map(|index| extent_of(moments, index));
    let whole = Extent::Whole;
    assert_eq!(extents, [Extent::Codes, Extent::Codes, Extent::Blocks, Extent::Blocks, whole, whole]);
    assert_eq!(Optimizer::MOST_STATES, 4);
}

/// Any sequence of extents, up to the largest number of states, can be read back from its number.
#[test]
fn extents_are_told_apart() {
    let all = Extent::ALL;
    assert!(all.iter().enumerate().all(|(number, &extent)| extent as usize == number));
    for first in 0..all.len() {
        let extents: Vec<Extent> = (0..16).map(|index| all[(first + index * index) % all.len()]).collect();
        let moments = extents.iter().fold(0, |moments, &extent| with_state(moments, &State::always("m").of(extent)));
        let found: Vec<Extent> = (0..16).map(|index| extent_of(moments, index)).collect();
        assert_eq!((state_count(moments), found), (16, extents));
    }
}

/// Codes are one vector, with a scale for each block. The state of a parameter with too few elements keeps its shape and has no scale.
#[test]
fn codes_are_of_large_parameters() {
    use crate::number::Role;
    let tensors = |dims: &[u64]| [Extent::Codes, Extent::Blocks].map(|extent| extent.tensor(Shape::new(dims)));
    let codes =
        |count, blocks| [Some((Shape::new(&[count]), Role::Code)), Some((Shape::new(&[blocks]), Role::WideMoment))];
    assert_eq!(tensors(&[64, 64]), codes(4096, 16));
    assert_eq!(tensors(&[64, 64, 3, 3]), codes(36_864, 144));
    assert_eq!(tensors(&[4097]), codes(4097, 17));
    assert_eq!(tensors(&[4095]), [Some((Shape::new(&[4095]), Role::WideMoment)), None]);
    assert_eq!(tensors(&[3, 5]), [Some((Shape::new(&[3, 5]), Role::WideMoment)), None]);
}

#[test]
fn rows_and_columns_are_of_the_last_two_axes() {
    let shapes = |dims: &[u64]| [Extent::Whole, Extent::Rows, Extent::Columns].map(|it| it.shape(Shape::new(dims)));
    let expected = |all: [&[u64]; 3]| all.map(|dims| Some(Shape::new(dims)));
    assert_eq!(shapes(&[5, 4]), expected([&[5, 4], &[5, 1], &[1, 4]]));
    assert_eq!(shapes(&[6, 3, 4, 5]), expected([&[6, 3, 4, 5], &[6, 3, 4, 1], &[6, 3, 1, 5]]));
    let vector = Some(Shape::new(&[7]));
    assert_eq!(shapes(&[7]), [vector, vector, None]);
}

#[test]
#[should_panic(expected = "the program has another number of optimizer states than the optimizer")]
fn states_of_the_parameters_size_are_not_taken_for_rows() {
    assert_states(&Optimizer::Adafactor(Adafactor::DEFAULT), 2);
}

/// The hyperparameters that a state depends on, or begins with, are numbers of the rule: an unknown name would count as 0.
#[test]
fn states_depend_on_numbers_that_are_there() {
    for optimizer in Optimizer::DEFAULTS {
        let mut names = Vec::new();
        optimizer.for_each_value(|name, _| names.push(name));
        let row = optimizer.row();
        let asked = row.states.iter().flat_map(|state| [state.unless_zero, state.initial]).flatten();
        asked.for_each(|name| assert!(names.contains(&name), "{name} of {}", row.name));
        // An optimizer with two rules has corrections in the second one.
        let mut names = Vec::new();
        optimizer.rule(false).for_each_value(|name, _| names.push(name));
        let betas = names.contains(&"beta1") && names.contains(&"beta2");
        assert!(row.corrections != Corrections::Betas || betas, "{}", row.name);
    }
}

#[test]
fn states_begin_with_what_they_should() {
    let adagrad = Adagrad { initial_accumulator_value: 0.25, ..Adagrad::DEFAULT };
    assert_eq!(Optimizer::Adagrad(adagrad).initial(0), 0.25);
    assert_eq!(Optimizer::Adagrad(adagrad).initial(1), 0.0);
    assert_eq!(Optimizer::Adam(Adam::DEFAULT).initial(0), 0.0);
}

/// PyTorch's keys of `optimizer.state[parameter]`; those of 8 bits are attributes of torchao's `OptimState8bit`.
#[test]
fn states_have_pytorchs_names() {
    let matrix = Shape::new(&[64, 64]);
    let names = |optimizer: Optimizer, parameter: Shape, is_matrix: bool| -> Vec<&'static str> {
        let state = |number| optimizer.state(number, parameter, is_matrix);
        let names: Vec<&str> = (0..Optimizer::MOST_STATES).map_while(state).map(|(name, _)| name).collect();
        assert_eq!(optimizer.state(Optimizer::MOST_STATES, parameter, is_matrix).map(|(name, _)| name), None);
        names
    };
    let adam = ["exp_avg", "exp_avg_sq"];
    let codes = ["exp_avg.codes", "exp_avg_sq.codes", "exp_avg.scale", "exp_avg_sq.scale"];
    for (optimizer, expected) in [
        (Optimizer::Sgd(Sgd::DEFAULT), &[][..]),
        (Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT }), &["momentum_buffer"]),
        (Optimizer::Adam(Adam::DEFAULT), &adam),
        (Optimizer::Adam(Adam { amsgrad: true, ..Adam::DEFAULT }), &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]),
        (Optimizer::AdamW(AdamW::DEFAULT), &adam),
        (Optimizer::NAdam(NAdam::DEFAULT), &adam),
        (Optimizer::RAdam(RAdam::DEFAULT), &adam),
        (Optimizer::Adamax(Adamax::DEFAULT), &["exp_avg", "exp_inf"]),
        (Optimizer::Lion(Lion::DEFAULT), &["exp_avg"]),
        (Optimizer::RmsProp(RmsProp::DEFAULT), &["square_avg"]),
        (
            Optimizer::RmsProp(RmsProp { momentum: 0.9, centered: true, ..RmsProp::DEFAULT }),
            &["square_avg", "momentum_buffer", "grad_avg"],
        ),
        (Optimizer::RmsProp(RmsProp { centered: true, ..RmsProp::DEFAULT }), &["square_avg", "grad_avg"]),
        (Optimizer::Adagrad(Adagrad::DEFAULT), &["sum"]),
        (Optimizer::Adadelta(Adadelta::DEFAULT), &["square_avg", "acc_delta"]),
        (Optimizer::Adafactor(Adafactor::DEFAULT), &["row_var", "col_var"]),
        (Optimizer::AdamW8bit(AdamW8bit::DEFAULT), &codes),
    ] {
        assert_eq!(names(optimizer, matrix, false), expected, "{optimizer:?}");
    }
    let vector = Shape::new(&[64]);
    assert_eq!(names(Optimizer::Adafactor(Adafactor::DEFAULT), vector, false), ["variance"]);
    assert_eq!(names(Optimizer::AdamW8bit(AdamW8bit::DEFAULT), vector, false), adam);
    let muon = Optimizer::Muon(Muon::DEFAULT);
    assert_eq!(names(muon, vector, false), adam);
    assert_eq!(muon.state(0, matrix, true).map(|(name, _)| name), Some("momentum_buffer"));
}

/// Optimizers that keep a state of some name, as errors list them.
#[test]
fn states_have_owners() {
    let owners = |state: &str| Optimizer::owners_of(state).collect::<Vec<_>>();
    assert_eq!(owners("momentum_buffer"), ["Sgd", "RmsProp", "Muon"]);
    let adams = ["Adam", "AdamW", "Lion", "NAdam", "Adamax", "RAdam", "AdamW8bit", "Muon"];
    assert_eq!(owners("exp_avg"), adams);
    assert_eq!((owners("variance"), owners("exp_avg.codes")), (vec!["Adafactor"], vec!["AdamW8bit"]));
    assert_eq!(owners("moment0"), [""; 0]);
    // A square, a sum of them or a largest magnitude is never negative; means of gradients may be.
    let signed = ["exp_avg", "exp_avg.codes", "grad_avg", "momentum_buffer"];
    let never =
        ["exp_avg_sq", "exp_avg_sq.codes", "exp_avg.scale", "exp_inf", "square_avg", "sum", "row_var", "col_var"];
    for state in Optimizer::ROWS.iter().flat_map(|row| row.states) {
        assert!(!(state.not_negative && signed.contains(&state.name)), "{}", state.name);
        assert!(state.not_negative || !never.contains(&state.name), "{}", state.name);
    }
}

/// Every default is in its bounds.
#[test]
fn defaults_are_sound() {
    for optimizer in Optimizer::DEFAULTS {
        assert_states(optimizer, optimizer.moments());
        optimizer.row().fields.iter().for_each(|field| assert_hyperparameter(optimizer, field));
    }
}

/// Every number of a rule is one hyperparameter's, which has a check of its own: none stays unchecked.
#[test]
fn every_number_belongs_to_a_hyperparameter() {
    for optimizer in Optimizer::DEFAULTS {
        let fields = optimizer.row().fields;
        optimizer.for_each_value(|name, _| {
            let of: Vec<&&str> = fields.iter().filter(|field| table::is_of(name, field)).collect();
            assert_eq!(of.len(), 1, "{name} of {}: {of:?}", optimizer.row().name);
        });
    }
}

#[test]
#[should_panic(expected = "`momentum` is 0, so that no `momentum_buffer` is kept, but memory was counted for it")]
fn a_state_that_nothing_uses_is_refused() {
    assert_states(&Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT }), 1);
    assert_states(&Optimizer::Sgd(Sgd::DEFAULT), 0);
    assert_states(&Optimizer::Sgd(Sgd::DEFAULT), 1);
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let (nan, infinity) = (f64::NAN, f64::INFINITY);
    let said = |optimizer: Optimizer| {
        let text = optimizer.mistake("");
        alloc::string::String::from(text.as_ref().map_or("", |text| text.as_str()))
    };
    let sgd = |momentum, dampening, nesterov| Optimizer::Sgd(Sgd { momentum, dampening, nesterov, ..Sgd::DEFAULT });
    let nadam = |momentum_decay| Optimizer::NAdam(NAdam { momentum_decay, ..NAdam::DEFAULT });
    let nesterov = "`nesterov` of `Sgd` needs a momentum and no dampening";
    for (optimizer, expected) in [
        (sgd(-0.5, 0.0, false), "`momentum` of `Sgd` must be from 0 to 1"),
        (sgd(2.0, 0.0, false), "`momentum` of `Sgd` must be from 0 to 1"),
        (sgd(1.0, 0.0, false), ""),
        (
            Optimizer::RmsProp(RmsProp { momentum: 1.5, ..RmsProp::DEFAULT }),
            "`momentum` of `RmsProp` must be from 0 to 1",
        ),
        (sgd(0.0, 0.0, true), nesterov),
        (sgd(0.9, 0.1, true), nesterov),
        (sgd(0.9, 0.0, true), ""),
        (
            Optimizer::Adam(Adam { betas: (1.0, 0.9), ..Adam::DEFAULT }),
            "`beta1` of `Adam` must be at least 0 and below 1",
        ),
        (
            Optimizer::AdamW(AdamW { betas: (0.9, -0.1), ..AdamW::DEFAULT }),
            "`beta2` of `AdamW` must be at least 0 and below 1",
        ),
        (Optimizer::Lion(Lion { betas: (0.9, 1.5), ..Lion::DEFAULT }), "`beta2` of `Lion` must be from 0 to 1"),
        (Optimizer::RmsProp(RmsProp { alpha: nan, ..RmsProp::DEFAULT }), "`alpha` of `RmsProp` must be from 0 to 1"),
        (
            Optimizer::Adagrad(Adagrad { lr_decay: -1.0, ..Adagrad::DEFAULT }),
            "`lr_decay` of `Adagrad` must be 0 or more and finite",
        ),
        (Optimizer::Adadelta(Adadelta { rho: 1.1, ..Adadelta::DEFAULT }), "`rho` of `Adadelta` must be from 0 to 1"),
        (nadam(infinity), "`momentum_decay` of `NAdam` must be 0 or more and finite"),
        (
            Optimizer::Adamax(Adamax { weight_decay: -1e-3, ..Adamax::DEFAULT }),
            "`weight_decay` of `Adamax` must be 0 or more and finite",
        ),
        (
            Optimizer::Adafactor(Adafactor { beta2_decay: 0.8, ..Adafactor::DEFAULT }),
            "`beta2_decay` of `Adafactor` must be 0 or less and finite",
        ),
        (
            Optimizer::Adafactor(Adafactor { eps: (Some(0.0), 1e-3), ..Adafactor::DEFAULT }),
            "`eps.0` of `Adafactor` must be above 0 and finite",
        ),
        (
            Optimizer::Adafactor(Adafactor { d: 0.5, ..Adafactor::DEFAULT }),
            "`d` of `Adafactor` must be 1 or more and finite",
        ),
        (Optimizer::RAdam(RAdam { eps: -1.0, ..RAdam::DEFAULT }), "`eps` of `RAdam` must be 0 or more and finite"),
    ] {
        assert_eq!(said(optimizer), expected);
    }
}

#[test]
#[should_panic(expected = "the learning rate `lr` must be 0 or more and finite")]
fn a_rate_below_zero_is_refused() {
    assert_hyperparameter(&Optimizer::Adamax(Adamax { lr: -1.0, ..Adamax::DEFAULT }), "lr");
}

#[test]
#[should_panic(
    expected = "`centered` is false, so that no `grad_avg` is kept, but memory was counted for it: write a literal `false`"
)]
fn a_flag_that_is_not_set_is_refused() {
    assert_states(&Optimizer::RmsProp(RmsProp { momentum: 0.9, ..RmsProp::DEFAULT }), 3);
}

/// Each number is that of the last group that has it.
#[test]
fn parameters_take_what_their_groups_have() {
    let groups = &[
        Group { paths: "*.bias, *norm*", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "head.*", lr_factor: Some(10.0), ..Group::DEFAULT },
        Group { paths: "head.norm.*", lr_factor: Some(0.5), weight_decay: Some(0.2), ..Group::DEFAULT },
    ];
    let optimizer = Optimizer::AdamW(AdamW { lr: 0.1, weight_decay: 0.05, groups, ..AdamW::DEFAULT });
    for (name, expected) in [
        ("linear.weight", (1.0, 0.05)),
        ("linear.bias", (1.0, 0.0)),
        ("head.weight", (10.0, 0.05)),
        ("head.bias", (10.0, 0.0)),
        ("head.norm.bias", (0.5, 0.2)),
    ] {
        assert_eq!(optimizer.own(name), expected, "{name}");
        let own = optimizer.of(expected);
        assert_eq!((own.lr(), own.weight_decay()), (0.1 * expected.0, expected.1));
        // The optimizer's rate carries those of groups with it.
        assert_eq!(optimizer.with_lr(1.0).of(expected).lr(), expected.0);
    }
    assert_states(&optimizer, 2);
}

#[test]
#[should_panic(expected = "a group's `lr` is kept as a multiple of the optimizer's `lr`")]
fn a_group_without_a_rate_to_be_a_part_of_is_refused() {
    let groups = &[Group { paths: "*", lr_factor: Some(0.1 / 0.0), ..Group::DEFAULT }];
    assert_group(&Optimizer::Sgd(Sgd { groups, ..Sgd::DEFAULT }), 0);
}

#[test]
#[should_panic(expected = "`weight_decay` of a group must be 0 or more and finite")]
fn a_group_with_a_weight_decay_below_zero_is_refused() {
    let groups = &[Group::DEFAULT, Group { paths: "*", weight_decay: Some(-1.0), ..Group::DEFAULT }];
    assert_group(&Optimizer::Sgd(Sgd { groups, ..Sgd::DEFAULT }), 1);
}

/// Each number of a rule is that of the last group that sets it, for every rule whose numbers groups may set.
#[test]
fn parameters_have_rules_of_their_groups() {
    let groups = &[
        Group { paths: "*.bias", betas: Some((0.5, 0.75)), eps: Some(0.25), momentum: Some(0.125), ..Group::DEFAULT },
        Group { paths: "head.*", eps: Some(0.0625), ..Group::DEFAULT },
    ];
    let adam = Optimizer::Adam(Adam { groups, ..Adam::DEFAULT });
    let rule = |optimizer: Optimizer, name: &str| optimizer.rule_of(false, name);
    let expected = |betas, eps| Optimizer::Adam(Adam { betas, eps, groups, ..Adam::DEFAULT });
    for (name, betas, eps) in [
        ("body.weight", Adam::DEFAULT.betas, Adam::DEFAULT.eps),
        ("body.bias", (0.5, 0.75), 0.25),
        ("head.weight", Adam::DEFAULT.betas, 0.0625),
        ("head.bias", (0.5, 0.75), 0.0625),
    ] {
        assert_eq!(rule(adam, name), expected(betas, eps), "{name}");
    }
    let sgd = Sgd { momentum: 0.9, groups, ..Sgd::DEFAULT };
    assert_eq!(rule(Optimizer::Sgd(sgd), "a.bias"), Optimizer::Sgd(Sgd { momentum: 0.125, ..sgd }));
    let muon = Optimizer::Muon(Muon { groups, ..Muon::DEFAULT });
    assert_eq!(muon.rule_of(true, "a.bias"), muon);
    for optimizer in Optimizer::DEFAULTS {
        assert!(optimizer.row().of_groups.iter().all(|name| optimizer.row().fields.contains(name)), "{optimizer:?}");
    }
}

#[test]
#[should_panic(expected = "`betas` of a group must be at least 0 and below 1")]
fn a_group_with_betas_beyond_their_bounds_is_refused() {
    let groups = &[Group { paths: "*", betas: Some((0.9, 1.0)), ..Group::DEFAULT }];
    assert_group(&Optimizer::Adam(Adam { groups, ..Adam::DEFAULT }), 0);
}

#[test]
#[should_panic(expected = "`eps` of a group must be 0 or more and finite")]
fn a_group_with_an_eps_below_zero_is_refused() {
    let groups = &[Group { paths: "*", eps: Some(-1e-8), ..Group::DEFAULT }];
    assert_group(&Optimizer::Adam(Adam { groups, ..Adam::DEFAULT }), 0);
}

#[test]
#[should_panic(expected = "`momentum` of a group must be above 0 and finite")]
fn a_group_without_momentum_is_refused() {
    let groups = &[Group { paths: "*", momentum: Some(0.0), ..Group::DEFAULT }];
    assert_group(&Optimizer::Sgd(Sgd { momentum: 0.9, groups, ..Sgd::DEFAULT }), 0);
}

#[test]
#[should_panic(expected = "a group has `momentum`, but the optimizer keeps none: give the optimizer a `momentum` too")]
fn a_momentum_of_a_group_alone_is_refused() {
    let groups = &[Group { paths: "*", momentum: Some(0.9), ..Group::DEFAULT }];
    assert_group(&Optimizer::Sgd(Sgd { groups, ..Sgd::DEFAULT }), 0);
}
