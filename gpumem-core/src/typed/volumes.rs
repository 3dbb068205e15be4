//! Shape rules of windows over volumes, `[C, D, H, W]`.

use super::{ShapeRule, Spread, Window};
use core::marker::PhantomData;
use typenum::Unsigned;

/// Rule with depth, height and width of the output.
#[derive(Debug)]
pub struct AdaptivePool3d<D, H, W>(PhantomData<(D, H, W)>);

impl<C, D, H, W, OD, OH, OW> ShapeRule<(C, D, H, W)> for AdaptivePool3d<OD, OH, OW>
where
    C: Unsigned,
    D: Unsigned,
    H: Unsigned,
    W: Unsigned,
    OD: Unsigned,
    OH: Unsigned,
    OW: Unsigned,
{
    type Out = (C, OD, OH, OW);
}

/// Rule with kernel, stride, padding, dilation and overhang of the depth, of the height, then of the width.
#[derive(Debug)]
#[allow(clippy::type_complexity)]
pub struct Pool3d<KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(
    PhantomData<(KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>,
);

impl<KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, D, H, W> ShapeRule<(C, D, H, W)>
    for Pool3d<KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
where
    C: Unsigned,
    D: Window<KD, SD, PD, DD, ED>,
    H: Window<KH, SH, PH, DH, EH>,
    W: Window<KW, SW, PW, DW, EW>,
{
    type Out = (C, D::Out, H::Out, W::Out);
}

/// Rule with output channels, then kernel, stride, padding, dilation and overhang of depth, height and width.
#[derive(Debug)]
#[allow(clippy::type_complexity)]
pub struct Convolution3d<O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(
    PhantomData<(O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>,
);

impl<O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, D, H, W> ShapeRule<(C, D, H, W)>
    for Convolution3d<O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
where
    O: Unsigned,
    C: Unsigned,
    D: Window<KD, SD, PD, DD, ED>,
    H: Window<KH, SH, PH, DH, EH>,
    W: Window<KW, SW, PW, DW, EW>,
{
    type Out = (O, D::Out, H::Out, W::Out);
}

/// Rule with output channels, then kernel, stride, padding, dilation and output padding of depth, height and width.
#[derive(Debug)]
#[allow(clippy::type_complexity)]
pub struct TransposedConvolution3d<O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(
    PhantomData<(O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>,
);

impl<O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, D, H, W> ShapeRule<(C, D, H, W)>
    for TransposedConvolution3d<O, KD, SD, PD, DD, ED, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
where
    O: Unsigned,
    C: Unsigned,
    D: Spread<KD, SD, PD, DD, ED>,
    H: Spread<KH, SH, PH, DH, EH>,
    W: Spread<KW, SW, PW, DW, EW>,
{
    type Out = (O, D::Out, H::Out, W::Out);
}
