//! Models as trees of layers, flat parameters, optimisers and loss kernels.
