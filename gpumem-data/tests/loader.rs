//! The loader: order, padding, shards, resuming, errors, shutdown.

mod common;

use common::{Input, Labels, Numbers, collect, first_error, numbered};
use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::{Dataset, Error, ErrorKind, IGNORED, Loader, Place, Position, from_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn loader(set: impl Dataset) -> Loader<Input, Labels> {
    Loader::new(set).workers(2)
}

/// The labels of an epoch without padding.
fn labels(loader: &mut Loader<Input, Labels>) -> Vec<u32> {
    let batches = collect(loader).unwrap();
    batches.iter().flat_map(|(_, target, len)| target.as_slice()[..*len].to_vec()).collect()
}

#[test]
fn samples_depend_neither_on_workers_nor_on_what_is_read_ahead() {
    let epochs = |workers: usize, prefetch: usize| {
        let mut loader =
            Loader::<Input, Labels>::new(numbered(43)).shuffle().seed(7).workers(workers).prefetch(prefetch);
        [collect(&mut loader).unwrap(), collect(&mut loader).unwrap()]
    };
    let one = epochs(1, 1);
    assert_ne!(one[0], one[1]);
    for (workers, prefetch) in [(1, 5), (2, 1), (2, 3), (5, 6), (0, 0)] {
        assert_eq!(epochs(workers, prefetch), one);
    }
}

#[test]
fn a_resumed_training_sees_the_samples_that_were_left() {
    let mut whole = loader(numbered(43)).shuffle().seed(7);
    let mut samples = collect(&mut whole).unwrap();
    samples.extend(collect(&mut whole).unwrap());
    assert_eq!(whole.position(), Position { epoch: 2, sample: 0 });

    for (given, position) in [(0, (0, 0)), (3, (0, 12)), (10, (0, 40)), (11, (1, 0)), (15, (1, 16))] {
        let mut first = loader(numbered(43)).shuffle().seed(7);
        for _ in 0..given / 11 {
            collect(&mut first).unwrap();
        }
        let mut last = first.position();
        if given % 11 > 0 {
            last = first.epoch().unwrap().take(given % 11).last().unwrap().unwrap().position;
        }
        assert_eq!((last, first.position()), (Position { epoch: position.0, sample: position.1 }, last));

        let mut second = Loader::<Input, Labels>::new(numbered(43)).shuffle().seed(7).workers(5);
        second.resume(last);
        let mut left = collect(&mut second).unwrap();
        if second.position().epoch == 1 {
            left.extend(collect(&mut second).unwrap());
        }
        assert_eq!(left, samples[given..]);
    }
}

#[test]
fn an_epoch_that_was_broken_off_goes_on() {
    let mut loader = loader(numbered(40)).prefetch(5);
    let first = loader.epoch().unwrap().next().unwrap().unwrap().target.as_slice().to_vec();
    assert_eq!((first, loader.position()), (vec![0, 1, 2, 3], Position { epoch: 0, sample: 4 }));
    assert_eq!(labels(&mut loader), (4..40).collect::<Vec<_>>());
    assert_eq!(loader.position(), Position { epoch: 1, sample: 0 });
}

#[test]
fn shuffling_visits_every_sample_once() {
    let mut loader = loader(numbered(43)).shuffle();
    let mut orders = vec![(0..43).collect::<Vec<_>>()];
    for _ in 0..3 {
        let order = labels(&mut loader);
        assert!(!orders.contains(&order));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, orders[0]);
        orders.push(order);
    }
}

#[test]
fn shards_are_a_partition() {
    let mut all = Vec::new();
    for rank in 0..3 {
        let mut loader = loader(numbered(23)).shuffle().shard(rank, 3);
        assert_eq!(loader.batches().unwrap(), 2);
        all.extend(labels(&mut loader));
    }
    all.sort_unstable();
    assert_eq!(all, (0..23).collect::<Vec<_>>());
}

/// Shards cut the batches of one loader into pieces, and another number of shards goes on at their position.
#[test]
fn shards_are_pieces_of_larger_batches() {
    let mut whole = Loader::<Tensor<f32, (D<12>, D<2>)>, Tensor<u32, (D<12>,)>>::new(numbered(40)).shuffle();
    let batches: Vec<Vec<u32>> =
        whole.epoch().unwrap().map(|batch| batch.unwrap().target.as_slice().to_vec()).collect();
    for rank in 0..3 {
        let mut shard = loader(numbered(40)).shuffle().shard(rank, 3);
        for (number, of_all) in batches.iter().enumerate() {
            let batch = shard.next_batch().unwrap();
            assert_eq!(batch.target.as_slice(), &of_all[4 * rank..][..4]);
            assert_eq!(batch.global_len, if number == 3 { 4 } else { 12 });
            assert_eq!(batch.len, if number == 3 && rank > 0 { 0 } else { 4 });
        }
        assert_eq!(shard.position(), Position { epoch: 1, sample: 0 });
    }
    let mut shard = loader(numbered(40)).shuffle().shard(1, 3);
    shard.next_batch().unwrap();
    let mut other = loader(numbered(40)).shuffle().shard(0, 2);
    other.resume(shard.position());
    assert_eq!((shard.position().sample, other.next_batch().unwrap().target.as_slice()), (12, &batches[1][..4]));
}

#[test]
fn padding_has_an_ignored_label() {
    let mut padded = loader(numbered(6));
    // The first epoch leaves tensors that the second one fills anew.
    for _ in 0..2 {
        let batches = collect(&mut padded).unwrap();
        let (input, target, len) = &batches[1];
        assert_eq!((target.as_slice(), *len), (&[4, 5, IGNORED, IGNORED][..], 2));
        assert_eq!(input.as_slice()[4..], [0.0; 4]);
        assert_eq!(IGNORED as i32, -100);
    }
    let batches = collect(&mut loader(numbered(6)).ignore_label(255)).unwrap();
    assert_eq!(batches[1].1.as_slice(), [4, 5, 255, 255]);
}

#[test]
fn drop_last_leaves_an_incomplete_batch_out() {
    let mut loader = loader(numbered(43)).shuffle().drop_last();
    assert_eq!(loader.batches().unwrap(), 10);
    assert!(collect(&mut loader).unwrap().iter().all(|(_, _, len)| *len == 4));
    // A position in the rest that is left out goes on with the next epoch.
    loader.resume(Position { epoch: 4, sample: 41 });
    assert_eq!(labels(&mut loader).len(), 40);
    assert_eq!(loader.position(), Position { epoch: 6, sample: 0 });
    loader.resume(Position { epoch: u64::MAX, sample: 0 });
    assert_eq!(labels(&mut loader).len(), 40);
}

#[test]
fn numbers_are_padded_where_it_was_asked_for() {
    let set = || {
        from_fn(6, |index, _, sample| {
            sample.input(0)?.put_numbers(&[1.0, 1.0])?;
            sample.target(0)?.put_label(index as u32)
        })
    };
    let message = "6 samples fill no whole number of batches of 4 on each of 1 ranks, and no loss can leave out padding of this target; \
        add `.drop_last()` to train, or `.pad()` to look at the first `batch.len` outputs";
    assert_eq!(first_error(&mut Loader::<Input, Numbers>::new(set())), message);
    assert_eq!(collect(&mut Loader::<Input, Numbers>::new(set()).drop_last()).unwrap().len(), 1);
    let batches = collect(&mut Loader::<Input, Numbers>::new(set()).pad()).unwrap();
    assert_eq!(batches[1].1.as_slice(), [4.0, 5.0, 0.0, 0.0]);
}

#[test]
fn networks_may_have_several_inputs_and_no_target() {
    type Two = (Tensor<u8, (D<2>, D<3>)>, Tensor<u32, (D<2>, D<1>)>);
    let set = from_fn(4, |index, _, sample| {
        assert_eq!((sample.inputs().len(), sample.targets().len()), (2, 0));
        sample.input(0)?.put_bytes(&[index as u8; 3])?;
        sample.input(1)?.put_labels(&[index as u32])
    });
    let batches = collect(&mut Loader::<Two, ()>::new(set)).unwrap();
    assert_eq!((batches[1].0.0.as_slice(), batches[1].0.1.as_slice()), (&[2, 2, 2, 3, 3, 3][..], &[2, 3][..]));
}

#[test]
fn the_first_error_ends_the_epoch() {
    for workers in [1, 2, 5] {
        let set = from_fn(40, |index, _, sample| {
            if index >= 9 {
                return Err(
                    Error::format(format!("file {index} is damaged; replace it")).with_file(format!("{index}.png"))
                );
            }
            sample.input(0)?.put_numbers(&[0.0; 2])?;
            sample.target(0)?.put_label(index as u32)
        });
        let mut loader = Loader::<Input, Labels>::new(set).workers(workers).prefetch(8);
        let mut epoch = loader.epoch().unwrap();
        assert_eq!(epoch.next().unwrap().unwrap().target.as_slice(), [0, 1, 2, 3]);
        assert!(epoch.next().unwrap().is_ok());
        let error = epoch.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "`9.png`, sample 9: file 9 is damaged; replace it");
        assert_eq!((error.place(), error.file()), (Some(Place::Sample(9)), Some("9.png".as_ref())));
        assert!(epoch.next().is_none() && epoch.next().is_none());
        assert_eq!(loader.position(), Position { epoch: 0, sample: 8 });
        // The batch is not lost: the next run asks for it again.
        assert!(first_error(&mut loader).starts_with("`9.png`"));
        loader.resume(Position { epoch: 1, sample: 0 });
        assert!(loader.epoch().unwrap().next().unwrap().is_ok());
    }
}

#[test]
fn a_panic_is_an_error() {
    let set = from_fn(40, |index, _, sample| {
        assert!(index != 6, "no sample 6");
        sample.input(0)?.put_numbers(&[0.0; 2])?;
        sample.target(0)?.put_label(index as u32)
    });
    let mut loader = loader(set);
    let message = "sample 6: the data set panicked (\"no sample 6\"); correct its `get`, which runs in a worker thread";
    assert_eq!(first_error(&mut loader), message);
    // The worker goes on.
    loader.resume(Position { epoch: 0, sample: 8 });
    assert_eq!(labels(&mut loader).len(), 32);
}

#[test]
fn impossible_settings_are_errors() {
    let few = "3 samples are fewer than a batch of 4, and `drop_last` leaves nothing; take a smaller batch, or leave `drop_last` out";
    assert_eq!(first_error(&mut loader(numbered(3)).drop_last()), few);
    assert_eq!(labels(&mut loader(numbered(3))), [0, 1, 2]);
    assert_eq!(first_error(&mut loader(numbered(0))), "there are no samples: put files into it, or open another");
    let rank = "there is no shard 3 of 3; count ranks from 0 in `.shard(rank, of)`";
    assert_eq!(first_error(&mut loader(numbered(9)).shard(3, 3)), rank);
    assert!(loader(numbered(9)).shard(0, 0).batches().is_err());

    let mut beyond = loader(numbered(9));
    beyond.resume(Position { epoch: 2, sample: 10 });
    let message =
        "position 10 of epoch 2 is beyond the 9 samples of the data set; resume with the one it was saved with";
    assert_eq!(first_error(&mut beyond), message);

    let differ = Loader::<Input, Tensor<u32, (D<3>,)>>::new(numbered(9)).batches().unwrap_err();
    let message = "the outermost dimensions of the tensors are [4, 3]; make them one batch of at least 1, as a network's input and target have";
    assert_eq!(differ.to_string(), message);
    assert!(Loader::<Tensor<f32, (D<0>, D<2>)>, ()>::new(numbered(9)).batches().is_err());
}

#[test]
fn slots_are_checked() {
    let of = |get: fn(&mut gpumem_data::Sample<'_>) -> gpumem_data::Result<()>| {
        first_error(&mut loader(from_fn(4, move |_, _, sample| get(sample))))
    };
    assert_eq!(
        of(|sample| sample.input(0)?.put_numbers(&[0.0; 2])),
        "sample 0: the data set wrote nothing to target 0 of the network; write it in `get`, or take a data set that has it"
    );
    assert_eq!(
        of(|sample| sample.input(0)?.put_numbers(&[0.0; 3])),
        "sample 0: the network takes [2], but there is [3]; resize or crop the data, or change the network's input"
    );
    let element =
        "sample 0: the network takes f32, but there is u32; store the data as f32, or change the network's type";
    assert_eq!(of(|sample| sample.input(0)?.put_labels(&[1, 2])), element);
    assert_eq!(
        of(|sample| sample.target(0)?.put_bytes(&[1])),
        "sample 0: the network takes u32, but there is u8; store the data as u32, or change the network's type"
    );
    assert_eq!(
        of(|sample| sample.input(1)?.put_label(1)),
        "sample 0: the data set has inputs up to number 1, but the network takes 1; take fewer from the data set, or declare more in the network"
    );
    assert!(of(|sample| sample.target(7)?.put_label(1)).contains("targets up to number 7"));
}

#[test]
fn bytes_become_numbers_as_in_to_tensor() {
    type Image = Tensor<f32, (D<1>, D<3>, D<1>, D<2>)>;
    let set = from_fn(1, |_, _, sample| sample.input(0)?.put_pixels(&[255, 0, 51, 0, 255, 0], [1, 2, 3]));
    let batches = collect(&mut Loader::<Image, ()>::new(set)).unwrap();
    assert_eq!(batches[0].0.as_slice(), [1.0, 0.0, 0.0, 1.0, 0.2, 0.0]);
}

#[test]
fn dropping_in_the_middle_ends_the_workers() {
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let set = from_fn(100_000, move |index, _, sample| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
        sample.input(0)?.put_numbers(&[0.0; 2])?;
        sample.target(0)?.put_label(index as u32)
    });
    let mut loader = Loader::<Input, Labels>::new(set).workers(3).prefetch(4);
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    drop(loader);
    let after = read.load(Ordering::Relaxed);
    assert!(after < 60, "{after}");
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!((read.load(Ordering::Relaxed), batch.len), (after, 4));
    // No epoch was ever begun, and one was begun and dropped at once.
    drop(Loader::<Input, Labels>::new(numbered(9)));
    let mut loader = Loader::<Input, Labels>::new(numbered(9));
    assert_eq!(loader.epoch().unwrap().size_hint(), (1, Some(3)));
}

#[test]
fn a_caller_may_keep_all_batches() {
    let mut loader = Loader::<Input, Labels>::new(numbered(400)).workers(2).prefetch(2);
    let batches: Vec<_> = loader.epoch().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!((batches.len(), batches[99].target.as_slice()), (100, &[396, 397, 398, 399][..]));
}

#[test]
fn time_that_was_waited_is_counted() {
    let set = from_fn(8, |_, _, sample| {
        std::thread::sleep(Duration::from_millis(5));
        sample.input(0)?.put_numbers(&[0.0; 2])?;
        sample.target(0)?.put_label(0)
    });
    let mut loader = Loader::<Input, Labels>::new(set).workers(1);
    let mut epoch = loader.epoch().unwrap();
    while epoch.next().is_some() {}
    let waited = epoch.waited();
    assert!(waited >= Duration::from_millis(30), "{waited:?}");
    assert_eq!(loader.waited(), waited);

    // What is read while the caller computes is not waited for.
    let mut epoch = loader.epoch().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    while epoch.next().is_some() {}
    assert!(epoch.waited() < Duration::from_millis(25), "{:?}", epoch.waited());
}

#[test]
fn kinds_are_public() {
    let error = loader(numbered(3)).drop_last().batches().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::FewSamples { samples: 3, batch: 4 });
    assert_eq!((error.file(), error.place()), (None, None));
}

#[test]
fn batches_one_by_one_are_those_of_epochs() {
    let mut whole = loader(numbered(43)).shuffle().seed(7);
    let epochs = [collect(&mut whole).unwrap(), collect(&mut whole).unwrap()].concat();
    let mut single = loader(numbered(43)).shuffle().seed(7);
    for (number, expected) in epochs.iter().enumerate() {
        let batch = single.next_batch().unwrap();
        assert_eq!(&(batch.input.clone(), batch.target.clone(), batch.len), expected, "batch {number}");
        assert_eq!((batch.position.sample == 0, batch.position), (number % 11 == 10, single.position()));
        // Questions between two calls change nothing.
        assert_eq!(single.batches().unwrap(), 11);
    }
    // A position, and an epoch in between.
    single.resume(Position { epoch: 0, sample: 12 });
    let batch = single.next_batch().unwrap();
    assert_eq!((batch.target.clone(), batch.position.sample), (epochs[3].1.clone(), 16));
    drop(batch);
    assert_eq!(single.epoch().unwrap().count(), 7);
    assert_eq!(single.next_batch().unwrap().target, epochs[11].1);
}

#[test]
fn a_batch_that_fails_is_tried_again() {
    static FAILS: AtomicUsize = AtomicUsize::new(1);
    let set = from_fn(8, |index, _, sample| {
        if index == 5 && FAILS.swap(0, Ordering::Relaxed) > 0 {
            return Err(Error::format("the sample is damaged; remove it"));
        }
        sample.input(0)?.put_numbers(&[index as f32; 2])?;
        sample.target(0)?.put_label(index as u32)
    });
    let mut loader = loader(set);
    loader.next_batch().unwrap();
    assert_eq!(loader.next_batch().unwrap_err().place(), Some(Place::Sample(5)));
    assert_eq!(loader.next_batch().unwrap().target.as_slice(), [4, 5, 6, 7]);
    assert_eq!(loader.position(), Position { epoch: 1, sample: 0 });
}
