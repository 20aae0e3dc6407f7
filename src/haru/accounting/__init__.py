"""What becomes of cards, and of their time: who holds them, whether they idle, and what waits meanwhile.

standing   one moment: every card in parts, each with its state, from a snapshot                      pure
waiting    which waiting work could use a free part, and why it does not, from the funnel of explain  pure
ledger     moments and the time between them, added up exactly                                        pure
pressure   what the kubelets say of the pods that hold devices                                        pure
report     device-hours by owner and namespace, as `haru top` tells them                              pure
history    the ledger on disk: bounded, and whole after kill -9
keeper     the component that watches the API server and keeps the history
"""
