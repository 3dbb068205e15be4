//! Tensors on the host.

use gpumem_core::error::Error;
use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;

type Batch = Tensor<f32, (D<3>, D<2>)>;

#[test]
fn a_batch_that_is_not_full_is_padded() {
    let (batch, count) = Batch::from_samples([[1.0, 2.0], [3.0, 4.0]]).unwrap();
    assert_eq!((batch.as_slice(), count), (&[1.0, 2.0, 3.0, 4.0, 0.0, 0.0][..], 2));
    let given: Vec<&[f32]> = batch.samples().take(count).collect();
    assert_eq!(given, [[1.0, 2.0], [3.0, 4.0]]);
    let (labels, count) = Tensor::<u32, (D<2>,)>::from_samples([[7], [8]]).unwrap();
    assert_eq!((labels.into_vec(), count), (vec![7, 8], 2));
    assert_eq!(Batch::from_samples(Vec::<Vec<f32>>::new()).unwrap().1, 0);
}

#[test]
fn samples_that_do_not_fit_are_errors() {
    let error = Batch::from_samples([vec![1.0, 2.0], vec![3.0]]).unwrap_err();
    assert!(matches!(error, Error::Length { expected: 2, found: 1, .. }));
    assert!(error.to_string().contains("sample 1 of a batch of shape [3, 2]"), "{error}");
    let error = Batch::from_samples([[0.0; 2]; 5]).unwrap_err();
    assert!(matches!(error, Error::Samples { batch: 3, found: 5 }));
    assert!(error.to_string().starts_with("the batch has room for 3 samples, but "), "{error}");
}

#[test]
fn elements_have_positions() {
    let tensor = Tensor::<u32, (D<2>, D<3>)>::from([[1, 2, 3], [4, 5, 6]]);
    assert_eq!((tensor.get(&[0, 0]), tensor.get(&[1, 2])), (Some(&1), Some(&6)));
    for outside in [&[2, 0][..], &[0, 3], &[0], &[0, 0, 0]] {
        assert_eq!(tensor.get(outside), None, "{outside:?}");
    }
    assert_eq!(Tensor::<u32, (D<2>,)>::from([8, 9]).as_slice(), [8, 9]);
    assert_eq!(Tensor::<u32, (D<1>, D<2>, D<2>)>::from([[[1, 2], [3, 4]]]).into_vec(), [1, 2, 3, 4]);
}

#[test]
fn the_largest_of_each_sample() {
    let logits = Tensor::<f32, (D<4>, D<3>)>::from([
        [0.0, 2.0, 1.0],
        [5.0, 5.0, 5.0],
        [f32::NEG_INFINITY, -1.0, -2.0],
        [1.0, f32::NAN, f32::INFINITY],
    ]);
    assert_eq!(logits.argmax(), [1, 0, 1, 1]);
}
