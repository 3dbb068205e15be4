//! Methods of PyTorch's modules that networks do not have. Each has a bound that no type meets; its message names the method to call.

use crate::network::Network;
use crate::run::device::Device;
use crate::run::net::Net;

macro_rules! absent {
    ($($trait:ident: $method:ident($($argument:ident)?), $message:literal, $label:literal;)*) => {
        $(
            #[doc(hidden)]
            #[diagnostic::on_unimplemented(message = $message, label = $label)]
            pub trait $trait {}
        )*

        impl<N: Network, D: Device> Net<N, D> {
            $(
                #[doc(hidden)]
                pub fn $method<$($argument)?>(&mut self $(, _: $argument)?)
                where
                    N: $trait,
                {
                }
            )*
        }
    };
}

absent! {
    Saves: save(P), "a network has no `save`", "`save_weights(path)` writes the model, and `save_state(folder)` all that a training goes on from";
    HasStateDict: state_dict(), "a network has no `state_dict`", "`save_weights(path)` writes one as a file; `tensors()` names all that lasts, and `get` reads one by its name";
    LoadsStateDict: load_state_dict(P), "a network has no `load_state_dict`", "`load_weights(path)` reads one from a file; `set` sets one tensor by its name";
    HasModes: eval(), "a network has no modes", "`forward` and `eval_loss` use running statistics and no dropout, `train_step` trains";
    HasTrainingMode: train(), "a network has no modes", "`train_step` trains, `forward` and `eval_loss` use running statistics and no dropout";
}
