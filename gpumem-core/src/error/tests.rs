//! Texts of errors.

use super::*;
use alloc::{format, vec};

#[test]
fn errors_have_sources() {
    use core::error::Error as _;

    let cause = "x".parse::<u8>().unwrap_err();
    let error = Error::failed_because("CUDA", "reading a number: invalid digit", cause.clone());
    let source = error.source().unwrap().downcast_ref::<core::num::ParseIntError>();
    assert_eq!(source, Some(&cause));
    assert_eq!(error, Error::failed_because("CUDA", "reading a number: invalid digit", cause));
    assert!(Error::failed("CUDA", "no card").source().is_none());
    let several = Error::Several(vec![Error::Damaged("one"), Error::Damaged("two")]);
    assert_eq!(several.source().unwrap().to_string(), Error::Damaged("one").to_string());
}

fn library(found: Option<&str>) -> Error {
    let (wanted, package) = ("12.2 or newer".into(), "cuda-nvrtc".into());
    Error::Library { name: "NVRTC", found: found.map(Into::into), wanted, package }
}

#[test]
fn short_memory_names_who_holds_the_rest() {
    const GIB: u64 = 1 << 30;
    let text = |holders: &[(&str, Option<u64>)]| {
        let holders = holders.iter().map(|&(name, bytes)| Holder { name: name.into(), bytes }).collect();
        let (needed, free) = (12 * GIB + (GIB >> 2), Some(3 * GIB));
        Error::Memory { device: "CUDA", needed, beside: None, lasting: 0, free, holders }.to_string()
    };
    let (begin, end) =
        ("CUDA: 12.25 GiB are needed, but only 3.00 GiB are free", "; free some, or train with a smaller batch");
    assert_eq!(text(&[]), format!("{begin}{end}"));
    assert_eq!(
        text(&[("python3 (process 4711)", Some(8 * GIB + (GIB >> 1))), ("this process", Some(428 << 20))]),
        format!("{begin}: python3 (process 4711) holds 8.50 GiB, this process holds 428.0 MiB{end}")
    );
    assert_eq!(text(&[("process 7", None)]), format!("{begin}: process 7 holds an unknown amount{end}"));
    let many =
        [("a", Some(GIB)), ("b", Some(GIB)), ("c", Some(GIB)), ("d", Some(GIB)), ("e", Some(1 << 20)), ("f", None)];
    assert_eq!(
        text(&many),
        format!(
            "{begin}: a holds 1.00 GiB, b holds 1.00 GiB, c holds 1.00 GiB, d holds 1.00 GiB, 2 others hold 1.0 MiB{end}"
        )
    );
    assert!(text(&many[..5]).contains(", e holds 1.0 MiB; free"));
}

#[test]
fn short_memory_blames_no_batch_where_weights_take_it() {
    const GIB: u64 = 1 << 30;
    let text = |needed, lasting, free| {
        Error::Memory { device: "CPU", needed, beside: None, lasting, free, holders: Vec::new() }.to_string()
    };
    let advice = "283.00 GiB of them are weights and what training keeps beside them, at any batch: free some, or make the \
                  network smaller";
    assert_eq!(text(284 * GIB, 283 * GIB, None), format!("CPU: 284.00 GiB could not be allocated; {advice}"));
    assert_eq!(
        text(284 * GIB, 283 * GIB, Some(64 * GIB)),
        format!("CPU: 284.00 GiB are needed, but only 64.00 GiB are free; {advice}")
    );
    // A smaller batch helps if these bytes fit.
    assert!(text(284 * GIB, 63 * GIB, Some(64 * GIB)).ends_with("; free some, or train with a smaller batch"));
    assert!(text(284 * GIB, 63 * GIB, None).ends_with("; free some, or train with a smaller batch"));
}

#[test]
fn short_memory_says_which_figure_was_used() {
    let text = |beside| {
        let (needed, free) = (3 << 30, Some(1 << 30));
        Error::Memory { device: "CUDA", needed, beside: Some(beside), lasting: 0, free, holders: Vec::new() }
            .to_string()
    };
    let (begin, end) =
        ("CUDA: 3.00 GiB are needed, ", ", but only 1.00 GiB are free; free some, or train with a smaller batch");
    let measured = "80.0 MiB of them beside the arena, as measured when the network was loaded before";
    assert_eq!(text(Beside::Measured(80 << 20)), format!("{begin}{measured}{end}"));
    let rule = "112.0 MiB of them beside the arena, by the rule for cards";
    assert_eq!(text(Beside::Rule(112 << 20)), format!("{begin}{rule}{end}"));
    assert_eq!(text(Beside::NotCounted), format!("{begin}those beside the arena not counted{end}"));
}

#[test]
fn messages_say_what_to_do() {
    let cases = [
        (
            Error::Memory {
                device: "CPU",
                needed: 3 << 30,
                beside: None,
                lasting: 0,
                free: Some(1 << 20),
                holders: Vec::new(),
            },
            "CPU: 3.00 GiB are needed, but only 1.0 MiB are free; free some, or train with a smaller batch",
        ),
        (
            Error::Memory { device: "CPU", needed: 1000, beside: None, lasting: 500, free: None, holders: Vec::new() },
            "CPU: 1000 bytes could not be allocated; free some, or train with a smaller batch",
        ),
        (library(None), "NVRTC 12.2 or newer is needed, but there is none; install cuda-nvrtc"),
        (
            library(Some("version 11.8 (libnvrtc.so.11)")),
            "NVRTC 12.2 or newer is needed, but version 11.8 (libnvrtc.so.11) was found; install cuda-nvrtc",
        ),
        (
            Error::Several(vec![library(None), Error::failed("CUDA", "no card")]),
            "NVRTC 12.2 or newer is needed, but there is none; install cuda-nvrtc\nCUDA: no card",
        ),
        (Error::failed("CUDA", "launch failed"), "CUDA: launch failed"),
        (
            Error::Samples { batch: 4, found: 5 },
            "the batch has room for 4 samples, but 5 were given; hand them over in several batches, as `samples.chunks(4)` gives them",
        ),
        (
            Error::Value { name: "bn.running_var".into(), position: 3, value: -0.5, rule: "a variance is 0 or more" },
            "`bn.running_var` cannot be -0.5 at position 3: a variance is 0 or more; set what `get` gave for this name",
        ),
        (
            Error::State {
                name: "fc.weight.momentum_buffer".into(),
                parameter: "fc.weight".into(),
                owners: vec!["Sgd", "RmsProp", "Muon"],
                optimizer: "AdamW",
                kept: vec!["exp_avg".into(), "exp_avg_sq".into()],
            },
            "`fc.weight.momentum_buffer` is a state of `Sgd`, `RmsProp` and `Muon`, but the network is trained by `AdamW`, which keeps \
             `exp_avg` and `exp_avg_sq` of `fc.weight`; write the optimizer that the state is of in `TRAIN`, or set parameters and \
             statistics only",
        ),
        (
            Error::Index { what: "label", position: 5, value: (-100_i32).cast_unsigned(), limit: 3 },
            "label -100 at position 5 is negative: it must be from 0 to 2; `ignore_index: -100` in the loss leaves out what is labelled so",
        ),
        (
            Error::Index { what: "token", position: 0, value: u32::MAX, limit: 7 },
            "token -1 at position 0 is negative: it must be from 0 to 6; a table has a row for each token, also for the one that fills \
             up: give that a number of its own",
        ),
        (
            Error::Index { what: "input length", position: 1, value: u32::MAX, limit: 5 },
            "input length -1 at position 1 is negative: it must be from 0 to 4",
        ),
        (
            Error::Index { what: "label", position: 5, value: 4, limit: 4 },
            "label 4 at position 5 is too large: it must be below 4",
        ),
        // An index beyond `i32::MAX` is no negative number if the table has so many rows.
        (
            Error::Index { what: "token", position: 0, value: u32::MAX, limit: (1 << 31) + 1 },
            "token 4294967295 at position 0 is too large: it must be below 2147483649",
        ),
        (
            Error::Order { what: "segment", position: 3, value: 0, before: 2 },
            "segment 0 at position 3 comes after 2: segments of a sample must not fall; number them in order, as 0, 0, 1, 1, 1, 2",
        ),
        (Error::Range { offset: 8, length: 4, arena: 10 }, "bytes 8 to 8 + 4 lie outside the arena of 10 bytes"),
        (
            Error::Name { name: "x".into(), nearest: None },
            "the network has nothing called `x`; `names()` lists what it has",
        ),
        (
            Error::Shape { name: "fc.weight".into(), expected: vec![32, 64], found: vec![64, 32] },
            "`fc.weight` has the shape [32, 64] here and [64, 32] in the other network; give the layer the same size and options in both",
        ),
        (Error::Damaged("the plan is damaged"), "the plan is damaged; rebuild the crate, and report it if it stays"),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
}
